-- omfsd's submit gate inside slurmctld (JobSubmitPlugins=lua, this file beside slurm.conf).
--
-- Slurm starts a waiting job as soon as CPUs are idle, even one that no rule lets omfsd preempt. So while omfsd is
-- alive, such a job is held at submit (AdminComment "omfs:held:0"), and omfsd releases it when its account may have
-- the CPUs; a job that asks for what cannot be honored is refused with a line to its user. While omfsd is not alive
-- (or is paused, or in dry run), nothing is held, and nothing is refused but what is too long to read: Slurm goes on
-- without it.
--
-- Such a job is not held if its account has room for it for certain: omfsd writes into the file "admission" beside the
-- heartbeat how many CPUs each account has left (omfs_daemon/daemon/admission_file.py), and this script counts what it
-- has let in since. A job that Slurm would refuse is not held either: Slurm does not check a held job.
--
-- Marks in AdminComment say whose hold it is (docs/plugins.md). An order of omfsd's is carried out only if the job has
-- the mark that omfsd has seen, and if no other omfsd has taken over. An administrator's hold or release replaces the
-- mark.
--
-- The options of plugins/spank (OPTIONS) are written into the job's comment; users may as well write them there
-- themselves. So are the methods that the client which has submitted the job cannot bear (CLIENTS).
--
-- Settings: "omfs_job_submit.conf" beside this file, lines "name = value", read at every submit. `omfs config
-- job-submit` writes it from omfsd's configuration:
--   heartbeat         = /run/omfs/heartbeat   omfsd writes the seconds since the epoch into it
--   wake              = /run/omfs/wake        is opened and closed whenever a job that may be urgent (or real-time) is
--                                             submitted, changed or released, so that omfsd starts a cycle at once;
--                                             for others /run/omfs/wake_later, so that it does soon
--   max_age           = 10                    seconds after which omfsd counts as gone
--   class_1           = partition=a,b;qos=c;account=d;methods=requeue,suspend;default=requeue
--   class_2           = qos=urgent;account=weather;urgent=yes
--   class_3           = qos=beamline;urgent=yes;bound=1.5   (a real-time class: the slowdown that it promises)
--                                             classes in order: the first counts that matches all partitions of a
--                                             job, its QOS and its account; what is left out matches every job
--   scope_partitions  =                       omfsd and this script leave jobs of all others alone; by default all are
--   scope_accounts    =                       in scope
--   methods           = requeue,suspend,...   what a job of no class may name (omfs:method=NAME); by default all
--                                             built-in methods
--   min_runtime_max   = 0                     the most seconds that a job may ask for (omfs:min_runtime); 0: none may
--   let_in_partitions =                       without classes: jobs of these can be preempted by a requeue
--   let_in_accounts   =
--   let_in_qos        =
--   daemon_uid        = 0                     omfsd's user
--   privileged_uids   = 0                     who else may hold, release and rank: root, SlurmUser, Administrators
--   operator_uids     =                       Operators: Slurm lets them write no AdminComment
--   node_licenses     = ve_{node},mem_{node}  licenses in which memory and devices are counted (docs/node-licenses.md):
--                                             owners cannot change what their jobs have of them
--   any_licenses      = ve                    licenses for a device on any node: such a job is held until omfsd has
--                                             chosen its node, preemptible or not
--
-- A comment that names methods overrides the class's default. A job with --no-requeue is let in only by a method that
-- keeps its work; with JobRequeue=0 in slurm.conf, leave "requeue" out of the methods.
--
-- Each submit reads three short files. An error in this script lets the job in and is logged: a broken gate must not
-- stop a cluster from working. An error about the room of its account holds the job. An unknown setting is logged once
-- and has no effect.

local NO_VAL, INFINITE = 4294967294, 4294967295 -- slurm.h: "not given"; a release arrives as INFINITE, a hold as 0
local NO_VAL16 = 65534
local PENDING, SUSPENDED, FLAGS, SPECIAL_EXIT = 0, 2, 2 ^ 8, 2 ^ 12 -- slurm.h: states; above them, flags, and one flag
local ACCESS_DENIED, NODES_BUSY, NOT_SUPPORTED = 2002, 2016, 2036 -- slurm_errno.h
local JOB_SHARED_NONE = 0 -- slurm.h: --exclusive
-- Marks (omfs_daemon/cluster/holds.py); the whole number that follows omfsd's is left out here.
local HELD, RELEASED, STOPPING = "omfs:held", "omfs:rel", "omfs:stopping"
local ADMIN_HELD, ADMIN_RELEASED = "adm:held", "adm:rel"
local GATE = HELD .. ":0"
local METHOD, MIN_RUNTIME, BOUND = "omfs:method=", "omfs:min_runtime=", "omfs:bound=" -- keys in the comment,
local REPORT = "omfs:run=" -- what omfs-run writes there (omfs_daemon/protocol/job_comment.py)
local EXCLUDE, SIGNAL = "omfs:exclude=", "omfs:signal="
local VALUES = { -- and the values they take
  [METHOD] = "[a-z0-9_,]+",
  [EXCLUDE] = "[a-z0-9_,]+",
  [SIGNAL] = "[%w:]+",
  [MIN_RUNTIME] = "%d+",
  [BOUND] = "%d+%.?%d*",
}
local OPTIONS = { -- plugins/spank
  { "OMFS_METHOD", METHOD },
  { "OMFS_EXCLUDE", EXCLUDE },
  { "OMFS_SIGNAL", SIGNAL },
  { "OMFS_MIN_RUNTIME", MIN_RUNTIME },
  { "OMFS_BOUND", BOUND },
}
local SIGNALS = "HUP,INT,QUIT,TERM,USR1,USR2" -- omfs_daemon/protocol/job_comment.py
-- Clients, a line that stands in each of their batch scripts, and the methods that they cannot bear
-- (omfs_daemon/cluster/clients.py).
local CLIENTS = { { name = "submitit", line = "export SUBMITIT_EXECUTOR=slurm", excluded = "suspend,pageout,ve_swap" } }
local LOSES_WORK = "requeue" -- omfs_daemon/preemption/methods/requeue.py
local NEEDS_SCRIPT = "requeue,dmtcp,criu,application" -- Slurm requeues batch jobs only, and omfs-run works in them only
local NEEDS_ONE_NODE = "dmtcp,criu" -- omfs_daemon/preemption/methods/checkpoint.py
local TAKES_WHOLE = "requeue,suspend" -- a heterogeneous job; omfs_daemon/preemption/methods/
local EPOCH = "epoch" -- the name of a file (omfs_daemon/daemon/heartbeat.py)
local LATER = "_later" -- ends the name of another (omfs_daemon/config/schema.py)
-- Slurm refuses an AdminComment in an owner's update, so an owner's release is recorded in the job's comment.
local WAIT = "omfs:wait"

local DEFAULTS = {
  heartbeat = "/run/omfs/heartbeat",
  wake = "/run/omfs/wake",
  max_age = "10",
  scope_partitions = "",
  scope_accounts = "",
  methods = "requeue,suspend,dmtcp,criu,application,pageout,ve_swap",
  min_runtime_max = "0",
  let_in_partitions = "",
  let_in_accounts = "",
  let_in_qos = "",
  daemon_uid = "0",
  privileged_uids = "0",
  operator_uids = "",
  node_licenses = "",
  any_licenses = "",
}

-- The most characters that this script reads of what users send, so that slurmctld, which waits for it, never waits
-- longer than ten milliseconds, and that omfsd reads with each poll. Slurm itself refuses more than 1,024 of most of these,
-- but after this script, and of a submission only.
local LONGEST = {
  partition = 1024,
  account = 1024,
  qos = 1024,
  licenses = 1024,
  comment = 16384,
  admin_comment = 16384,
  req_nodes = 65536,
  features = 4096,
  prefer = 4096,
  wckey = 1024,
  name = 1024,
  reservation = 1024,
  dependency = 131072,
  exc_nodes = 65536,
  cpus_per_tres = 1024,
  mem_per_tres = 1024,
  tres_per_job = 1024,
  tres_per_node = 1024,
  tres_per_socket = 1024,
  tres_per_task = 1024,
  array_inx = 4096, -- a longer one is held: how many tasks it has is not counted
}
local MOST_SPANK = 256 -- entries; the options of all SPANK plug-ins of a site

local CONF = debug.getinfo(1, "S").source:gsub("^@", ""):gsub("[^/]*$", "") .. "omfs_job_submit.conf"

local reported = {}

local function report_unknown(name)
  if not DEFAULTS[name] and not name:match("^class_%d+$") and not reported[name] then
    reported[name] = true
    slurm.log_error("omfs: %s: unknown setting %s", CONF, name)
  end
end

-- When a job changes its partition or account, Slurm takes the errno of a file that could not be opened for its own,
-- and refuses the change. So a file that was missing last is not tried then (gently).
local missing = {}

local function open(path, mode, gently)
  if gently and missing[path] then
    return nil
  end
  local file = io.open(path, mode)
  missing[path] = file == nil
  return file
end

local function settings(gently)
  local found = setmetatable({}, { __index = DEFAULTS })
  local file = open(CONF, "r", gently)
  if file then
    for line in file:lines() do
      local name, value = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
      if name then
        report_unknown(name)
        found[name] = value
      end
    end
    file:close()
  end
  return found
end

local function max_age(conf)
  return tonumber(conf.max_age) or 10
end

local function alive(conf, gently)
  local file = open(conf.heartbeat, "r", gently)
  local beat = file and tonumber(file:read(20) or "")
  if file then
    file:close()
  end
  return beat ~= nil and math.abs(os.time() - beat) <= max_age(conf)
end

local function listed(list, word)
  return word ~= nil and word ~= "" and ("," .. list:gsub("%s", "") .. ","):find("," .. word .. ",", 1, true) ~= nil
end

-- The value of (start or space) KEY=VALUE (space or end) in a comment; nil without any. What omfsd might read
-- otherwise (omfs_daemon/protocol/job_comment.py) has no value: "". Only a short word is matched: a pattern may take
-- the square of its length, and slurmctld waits.
local LONGEST_VALUE = 200
local function value_of(comment, key)
  comment = comment or ""
  local first, last = comment:find(key, 1, true)
  if not last then
    return nil
  end
  local value = comment:match("^%S*", last + 1)
  local is_word = (first == 1 or comment:sub(first - 1, first - 1):find("%s")) and #value <= LONGEST_VALUE
  if not is_word or not value:find("^" .. VALUES[key] .. "$") then
    return ""
  elseif comment:find(key, last + 1, true) or ("," .. value .. ","):find(",,", 1, true) then
    return ""
  end
  return value
end

local function names(list)
  return (list or ""):gmatch("[^,%s]+")
end

local function set_of(list)
  local found = {}
  for name in names(list) do
    found[name] = true
  end
  return found
end

-- Whether omfsd may touch the job, as omfs_daemon/cluster/scope.py says it. With slurmdbd, Slurm stores an account in
-- lower case.
local function is_in_scope(conf, job)
  local account, any = job.account or "", false
  if conf.scope_accounts ~= "" and not listed(conf.scope_accounts, account) then
    if not listed(conf.scope_accounts, account:lower()) then
      return false
    end
  end
  for name in names(job.partition) do
    any = true
    if conf.scope_partitions ~= "" and not listed(conf.scope_partitions, name) then
      return false
    end
  end
  return any or conf.scope_partitions == ""
end

local function classes(conf)
  local found = rawget(conf, "parsed") -- once for each submit
  if found then
    return found
  end
  found = {}
  conf.parsed = found
  while conf["class_" .. #found + 1] do
    local class = {}
    for name, value in conf["class_" .. #found + 1]:gmatch("(%w+)=([^;]*)") do
      class[name] = value
    end
    class.urgent = class.urgent == "yes"
    found[#found + 1] = class
  end
  if #found == 0 then
    local let_in = { partition = conf.let_in_partitions, account = conf.let_in_accounts, qos = conf.let_in_qos }
    for _, field in ipairs({ "partition", "account", "qos" }) do
      if let_in[field] ~= "" then
        found[#found + 1] = { [field] = let_in[field], methods = conf.methods, default = LOSES_WORK }
      end
    end
  end
  return found
end

-- The lists of classes, which are the administrator's, as sets: a job in many partitions is compared with each.
local sets = {}

local function fits(list, name)
  if list == nil or list == "" then
    return true
  end
  sets[list] = sets[list] or set_of(list)
  return name ~= nil and sets[list][name] ~= nil
end

local function fits_partitions(class, partitions)
  local any = false
  for name in pairs(set_of(partitions)) do
    any = true
    if not fits(class.partition, name) then
      return false
    end
  end
  return any or fits(class.partition, nil)
end

-- A QOS as slurmdbd stores it, in lower case; nil where none is given: Slurm takes one by the association, and this
-- script is told that of some associations only.
local function stored_qos(name)
  return name ~= nil and name ~= "" and name:lower() or nil
end

local function goes_by_qos(class)
  return class.qos ~= nil and class.qos ~= ""
end

-- The classes that the job can be of (classify in omfs_daemon/policy/rules/classes.py): more than one only if its QOS
-- is not known (nil; "" is none). The last is its class if no class goes by that QOS.
local function possible_classes(conf, job)
  local found = {}
  for _, class in ipairs(classes(conf)) do
    local is_open = job.qos == nil and goes_by_qos(class)
    local by_qos = is_open or fits(class.qos, job.qos)
    -- Lists of partitions last: a job may name many.
    if by_qos and fits(class.account, job.account) and fits_partitions(class, job.partition) then
      found[#found + 1] = class
      if not is_open then
        return found
      end
    end
  end
  found[#found + 1] = { methods = conf.methods }
  return found
end

local function class_of(conf, job)
  local possible = possible_classes(conf, job)
  return possible[#possible]
end

-- Whether a list of QOS is asked for (Slurm 24.11 and later) where classes go by them: Slurm shows the first, and may
-- start the job with another.
local function lists_qos(conf, qos)
  if not (qos or ""):find(",", 1, true) then
    return false
  end
  for _, class in ipairs(classes(conf)) do
    if goes_by_qos(class) then
      return true
    end
  end
  return false
end

-- Whether a job's features count more than one node ("fast*2"): Slurm shows so many only once it runs. It parses the
-- number by strtol(3): blanks and a sign may come first.
local function counts_nodes(features)
  local total = 0
  for count in (features or ""):gmatch("%*%s*%+?(%d+)") do
    total = total + tonumber(count)
  end
  return total > 1
end

-- Slurm takes preferred features for required ones where it can, and omfsd does not see them before: so they count none.
local function prefers_nodes(request)
  return counts_nodes(request.prefer)
end

-- Whether the job could hand its CPUs to one that runs (permit_job_expansion), which may be one that is never preempted.
-- Slurm reads the word in any letter case.
local function expands(request)
  return (request.dependency or ""):lower():find("expand:", 1, true) ~= nil
end

-- Whether it names nodes as omfsd reads them. Slurm reads blanks as commas, and stores what an update gives it.
local function names_nodes_oddly(request)
  return ((request.req_nodes or "") .. (request.exc_nodes or "")):find("[^%w_.,%[%]%-]") ~= nil
end

-- Whether the job certainly gets more than one node. One that leaves their number open may, too: omfsd sees that later.
local function spans_nodes(job)
  local is_wide = type(job.min_nodes) == "number" and job.min_nodes > 1 and job.min_nodes < NO_VAL
  return is_wide or (job.nodes or ""):find("[[,]") ~= nil or counts_nodes(job.features)
end

-- Whether omfsd may preempt a job of this class. requeues: Slurm would requeue it (no --no-requeue). is_part: of a
-- heterogeneous job, which is preempted as a whole.
local function is_preemptible(class, job, requeues)
  local chosen, excluded = value_of(job.comment, METHOD) or class.default, value_of(job.comment, EXCLUDE) or ""
  if listed(chosen or "", "none") then
    return false
  end
  for name in names(chosen) do
    local survives = (requeues or name ~= LOSES_WORK) and not (spans_nodes(job) and listed(NEEDS_ONE_NODE, name))
    survives = survives and not (job.is_part and not listed(TAKES_WHOLE, name))
    if survives and not listed(excluded, name) and listed(class.methods or "", name) then
      return true
    end
  end
  return false
end

-- The job with its account as slurmdbd stores it, in lower case; nil if that is the same.
local function as_stored(job)
  local account = job.account
  if account and account ~= account:lower() then
    return setmetatable({ account = account:lower() }, { __index = job })
  end
end

local function is_surely_preemptible(conf, placed, job, requeues)
  for _, class in ipairs(possible_classes(conf, placed)) do
    if not is_preemptible(class, job, requeues) then
      return false
    end
  end
  return true
end

-- Whether omfsd may preempt the job, in whichever of its partitions it will run, however its account is stored, and
-- whatever its QOS is where that is not known.
local function let_in(conf, job, requeues)
  local stored = as_stored(job)
  if stored and not let_in(conf, stored, requeues) then
    return false
  end
  for name in pairs(set_of(job.partition)) do
    local alone = { partition = name, qos = job.qos, account = job.account }
    if not is_surely_preemptible(conf, alone, job, requeues) then
      return false
    end
  end
  return is_surely_preemptible(conf, job, job, requeues)
end

-- The node whose license this is by a template ("ve_{node}"); nil if it is none.
local function node_in(template, name)
  local front, back = template:match("^(.-){node}(.-)$")
  local node = front and name:sub(1, #front) == front and name:sub(#front + 1)
  if node and #node > #back and node:sub(#node - #back + 1) == back then
    return node:sub(1, #node - #back)
  end
end

-- Whether one of the licenses ("ve_n1:2,fluent") is in a list of node licenses, or of licenses for any node.
local function has_license(list, licenses)
  for entry in (licenses or ""):gmatch("[^,;|]+") do
    local name = entry:match("^%s*([^:=%s]+)") or ""
    for template in list:gmatch("[^,%s]+") do
      if name == template or node_in(template, name) then
        return true
      end
    end
  end
  return false
end

local function has_node_license(conf, licenses)
  return has_license(conf.node_licenses, licenses) or has_license(conf.any_licenses, licenses)
end

-- Whether the job requires every node whose licenses it asks for: it takes none of a node on which it does not run.
-- Names only: a job with "n[1-2]" is placed by omfsd, as is one that is changed later, whose nodes Slurm does not show.
local function names_its_nodes(conf, job)
  local required
  for entry in (job.licenses or ""):gmatch("[^,;|]+") do
    local name = entry:match("^%s*([^:=%s]+)") or ""
    if has_license(conf.node_licenses, name) then
      required = required or set_of(job.nodes)
      local found = false
      for template in conf.node_licenses:gmatch("[^,%s]+") do
        local node = node_in(template, name)
        found = found or node ~= nil and required[node] ~= nil
      end
      if not found then
        return false
      end
    end
  end
  return true
end

-- Whether Slurm may start the job on its own: it is preemptible, and names the nodes whose devices it wants. A part of a
-- heterogeneous job waits for omfsd, which sees all of them.
local function may_start(conf, job, requeues)
  return not job.is_part
    and let_in(conf, job, requeues)
    and not has_license(conf.any_licenses, job.licenses)
    and names_its_nodes(conf, job)
end

local function default_partition(partitions)
  for name, partition in pairs(partitions) do
    if partition.flag_default == 1 then
      return name
    end
  end
end

-- What omfsd has written about the room of accounts (omfs_daemon/daemon/admission_file.py); nil if it is missing, cut, or
-- anything else. There may be thousands of lines, of which a job needs a few: they are read when they are needed.
local MOST_READ = 2 ^ 20
local room = {}

local function parsed(text)
  local taken = text:sub(-5) == "\nend\n" and text:match("^omfs admission 1 (%d+%.?%d*)\n")
  local levels, accounts = text:find("\nlevel ", 1, true), text:find("\naccounts\n", 1, true)
  if not (taken and accounts) then
    return nil
  end
  return { text = text, taken = tonumber(taken), seen = text:sub(1, levels or 0), accounts = text:sub(accounts) }
end

-- The rest of the line that begins with these words; nil without it.
local function line(found, ...)
  local _, last = found.text:find("\n" .. table.concat({ ... }, " ") .. " ", 1, true)
  return last and found.text:match("^[^\n]+", last + 1)
end

local function level_of(found, level)
  return tonumber(line(found, "level", level))
end

-- "all", or the levels "2,0" of an account, from itself to its top account; nil if they are not whole.
local function path_of(found, text)
  local path = {}
  if text == "all" then
    return text
  end
  for level in (text or ""):gmatch("[^,]+") do
    if not level_of(found, level) then
      return nil
    end
    path[#path + 1] = level
  end
  return #path > 0 and path or nil
end

-- What jobs have taken: second of submit, path, CPUs, and whose job. One counts until omfsd has seen it, or has looked at
-- Slurm so many whole seconds later: between this script and the job list, slurmctld waits for locks.
local SETTLES = 2
local taken = {}
local uncounted_until = os.time() -- what was let in before is not known here
local seen_before = {} -- second of submit by job

local function is_observed(found, second)
  return found.taken >= second + 1 + SETTLES
end

-- Nothing tells which of its owner's jobs one is that omfsd has seen: the smallest that it could be.
local function forget_seen(one)
  local smallest
  for at, entry in ipairs(taken) do
    local could_be = entry.uid == one.uid and entry.path[1] == one.level and entry.second <= one.second
    if could_be and (not smallest or entry.cpus < taken[smallest].cpus) then
      smallest = at
    end
  end
  if smallest then
    table.remove(taken, smallest)
  end
end

local function forget_all_seen(found)
  for id, uid, second, level in found.seen:gmatch("\nseen (%d+) (%d+) (%d+) (%d+)") do
    if not seen_before[id] then
      seen_before[id] = tonumber(second)
      forget_seen({ uid = tonumber(uid), second = tonumber(second), level = level })
    end
  end
  for id, second in pairs(seen_before) do
    if second < found.taken - 60 then
      seen_before[id] = nil
    end
  end
end

local function forget_observed(found)
  for at = #taken, 1, -1 do
    if is_observed(found, taken[at].second) then
      table.remove(taken, at)
    end
  end
end

-- What the file says, and whether it is as fresh as the heartbeat of a daemon that lives.
local function admission(conf, gently)
  local file = open((conf.heartbeat:gsub("[^/]*$", "")) .. "admission", "r", gently)
  local text = file and file:read(MOST_READ) or ""
  if file then
    file:close()
  end
  if text ~= room.text then
    local found = parsed(text)
    if found and room.accounts and found.accounts ~= room.accounts then
      uncounted_until = os.time() -- levels may have other numbers now
    end
    room = { text = text, found = found, accounts = found and found.accounts or room.accounts }
    if found then
      forget_all_seen(found)
    end
  end
  local found = room.found
  if not found then
    return nil, false
  end
  forget_observed(found)
  return found, math.abs(os.time() - found.taken) <= max_age(conf)
end

local function left_at(found, level)
  local left = level_of(found, level)
  for _, entry in ipairs(taken) do
    for _, here in ipairs(entry.path) do
      left = left - (here == level and entry.cpus or 0)
    end
  end
  return left
end

local function take(path, cpus, uid)
  taken[#taken + 1] = { second = os.time(), path = path, cpus = cpus, uid = uid }
end

local function path_in(found, account)
  account = account or ""
  if account:find("%s") then
    return nil
  end
  return path_of(found, account ~= "" and line(found, "account", account) or line(found, "others"))
end

local function is_same(path, other)
  return path == other or type(path) == "table" and type(other) == "table" and path[1] == other[1]
end

-- The levels at which jobs of the account count, up to its top account; "all" if it owns all CPUs. nil if that is not
-- certain: with slurmdbd, Slurm stores an account in lower case.
local function levels_of(found, account)
  local path = path_in(found, account)
  return is_same(path, path_in(found, (account or ""):lower())) and path or nil
end

-- omfsd will release a job that is held as soon as it can. So until omfsd has seen it, it has all that its account has
-- left.
local function give_to_held(conf, account, gently)
  local found = admission(conf, gently)
  if not found then
    uncounted_until = os.time()
    return
  end
  for _, name in ipairs({ account or "", (account or ""):lower() }) do
    local path = path_in(found, name)
    if type(path) == "table" then
      take(path, math.max(0, left_at(found, path[1])))
    end
  end
end

-- A number that a job asks for; nil if it does not.
local function number_of(value, none)
  return type(value) == "number" and value > 0 and value < (none or NO_VAL) and value or nil
end

local function is_given(value)
  return value ~= nil and value ~= ""
end

local function array_tasks(text)
  if not is_given(text) then
    return 1
  elseif #text > LONGEST.array_inx then
    return nil
  end
  local tasks = 0
  for entry in (text:gsub("%%%d+$", "")):gmatch("[^,]+") do
    local first, final, step = entry:match("^(%d+)%-(%d+):?(%d*)$")
    if first and tonumber(first) <= tonumber(final) then
      tasks = tasks + math.floor((tonumber(final) - tonumber(first)) / math.max(1, tonumber(step) or 1)) + 1
    elseif entry:match("^%d+$") then
      tasks = tasks + 1
    else
      return nil
    end
  end
  return tasks > 0 and tasks or nil
end

-- What the partitions of the job have at most: nodes, CPUs, and CPUs and MB of one node; nil if one is not known.
-- known: omfsd has seen all nodes of them. by_memory: more CPUs come with more memory.
local function largest(found, asked, partitions)
  local most = { nodes = 0, total = 0, cpus = 0, memory = 0, exclusive = false, known = true }
  for name in names(asked.partition) do
    local partition = partitions[name]
    local number, cpus, memory = (line(found, "nodes", name) or ""):match("^(%d+) (%d+) (%d+)$")
    if not partition or not number then
      return nil
    end
    most.nodes = math.max(most.nodes, partition.total_nodes)
    most.total = math.max(most.total, partition.total_cpus)
    most.cpus = math.max(most.cpus, tonumber(cpus))
    most.memory = math.max(most.memory, tonumber(memory))
    most.exclusive = most.exclusive or partition.max_share == 0
    most.known = most.known and tonumber(number) == partition.total_nodes
    most.by_memory = most.by_memory or (partition.max_mem_per_cpu or 0) > 0
  end
  return most.nodes > 0 and most or nil
end

-- Whether no nodes of its partitions could run the job. Slurm refuses it then, or lets it wait for more nodes, as its
-- release does.
local function is_impossible(job, most)
  local cpus, most_nodes = number_of(job.min_cpus) or 1, math.min(number_of(job.max_nodes) or most.nodes, most.nodes)
  local memory = math.max(number_of(job.min_mem_per_node) or 0, number_of(job.min_mem_per_cpu) or 0)
  local on_node = number_of(job.pn_min_cpus, NO_VAL16) or 1
  return (number_of(job.min_nodes) or 1) > most.nodes
    or cpus > most.total
    or most.known and (on_node > most.cpus or cpus > most_nodes * most.cpus or memory > most.memory)
end

-- Whether a request is for a part of a heterogeneous job.
local function is_part(request)
  return type(request.het_job_offset) == "number" and request.het_job_offset < NO_VAL
end

-- Whether it has a batch script. That of a heterogeneous job is its first part's.
local function is_batch(request)
  return request.script ~= nil or is_part(request) and request.het_job_offset > 0
end

local BY_DEVICE = { "gres", "cpus_per_tres", "mem_per_tres", "tres_per_job", "tres_per_node", "tres_per_socket" }
local BY_SOCKET = { "sockets_per_node", "cores_per_socket", "ntasks_per_socket", "ntasks_per_gpu", "ntasks_per_tres" }

local function asks_for_any(texts, numbers, job)
  for _, name in ipairs(texts) do
    if is_given(job[name]) then
      return true
    end
  end
  for _, name in ipairs(numbers) do
    if number_of(job[name], NO_VAL16) then
      return true
    end
  end
  return false
end

-- Whether the number of CPUs cannot be told from the request: they may be rounded up to sockets, or come with devices.
local function is_uncertain(job)
  if asks_for_any(BY_DEVICE, BY_SOCKET, job) then
    return true
  end
  local by_task = job.tres_per_task
  return is_part(job) or counts_nodes(job.features) or is_given(by_task) and not by_task:match("^cpu[=:]%d+$")
end

-- The most CPUs that the job could be allocated, with all its tasks of an array; nil if that is not certain.
local function most_cpus(found, job, most)
  local threads, tasks_of_array = tonumber(line(found, "threads")), array_tasks(job.array_inx)
  if (threads or 0) < 1 or most.by_memory or not tasks_of_array or is_uncertain(job) then
    return nil
  end
  local shared = job.shared
  local least_nodes, most_nodes = number_of(job.min_nodes) or 1, number_of(job.max_nodes)
  local tasks, min_cpus = number_of(job.num_tasks) or 1, number_of(job.min_cpus) or 1
  local by_task = tonumber((job.tres_per_task or ""):match("%d+")) or 1
  local per_task = math.max(number_of(job.cpus_per_task, NO_VAL16) or 1, by_task)
  local nodes = most_nodes or math.max(tasks, least_nodes, min_cpus)
  if is_given(job.req_nodes) then
    nodes = job.req_nodes:find("[[,]") and most.nodes or nodes
  end
  nodes = math.min(nodes, most.nodes)
  if shared == JOB_SHARED_NONE or most.exclusive then
    return math.min(nodes * most.cpus, most.total) * tasks_of_array
  elseif type(shared) == "number" and shared > 1 and shared < NO_VAL16 then
    return nil -- exclusive for a user or a label
  end
  -- A core belongs to one job. Where each CPU may take a core, all do.
  local one_per_core = number_of(job.ntasks_per_core, NO_VAL16) or number_of(job.threads_per_core, NO_VAL16)
  local of_task = (one_per_core and per_task or math.ceil(per_task / threads)) * threads
  local on_node = number_of(job.pn_min_cpus, NO_VAL16) or 1
  local per_node = number_of(job.ntasks_per_node, NO_VAL16) or 0
  local cpus = math.max(tasks, most_nodes or least_nodes, nodes * per_node) * of_task
  if on_node > per_task then
    cpus = cpus + nodes * on_node * threads
  end
  if min_cpus > tasks * per_task or number_of(job.max_cpus) or job.req_nodes then
    cpus = math.max(cpus, min_cpus * threads, (number_of(job.max_cpus) or 0) * threads, nodes * of_task)
  end
  return math.min(cpus, most.total) * tasks_of_array
end

local function is_for_later(job)
  return is_given(job.dependency) or (job.begin_time or 0) > os.time()
end

-- Whether the job needs no hold: it is Slurm's to refuse, or its account has room for it, where it counts from now on.
local function needs_no_hold(conf, asked, job, partitions)
  local found, is_fresh = admission(conf)
  if not is_fresh then
    return false
  end
  local most = largest(found, asked, partitions)
  if most and is_impossible(job, most) then
    return true
  elseif asked.urgent then
    return false
  end
  local path = levels_of(found, asked.account)
  if path == "all" then
    return true
  end
  local is_counted = is_observed(found, uncounted_until) and not is_for_later(job)
  local cpus = path and most and is_counted and most_cpus(found, job, most)
  if not cpus then
    return false
  end
  for _, level in ipairs(path) do
    if left_at(found, level) < cpus then
      return false
    end
  end
  take(path, cpus, job.user_id)
  return true
end

local function owns_all(conf, account, gently)
  local found, is_fresh = admission(conf, gently)
  return is_fresh and levels_of(found, account) == "all"
end

-- Errors here hold the job.
local function guarded(what, ...)
  local fine, answer = pcall(what, ...)
  if not fine then
    slurm.log_error("omfs: job_submit.lua failed about the room of an account, job held: %s", tostring(answer))
  end
  return fine and answer
end

-- The parts of an AdminComment "MARK[ SENTENCE][ | FOREIGN]"; one without a mark is wholly foreign. An order that was
-- given while Slurm had no plug-in has left its "?EXPECTED" behind the mark.
local function mark_of(text)
  text = text or ""
  return text:match("^omfs:[^%s?]*") or text:match("^adm:[^%s?]*") or ""
end

local function foreign_of(text)
  return mark_of(text) == "" and (text or "") or text:match(" | (.*)$") or ""
end

local function with_foreign(ours, foreign)
  return (ours == "" or foreign == "") and ours .. foreign or ours .. " | " .. foreign
end

local function is_a(kind, mark)
  return mark == kind or mark:sub(1, #kind + 1) == kind .. ":"
end

local function has_wait(comment)
  return (" " .. comment .. " "):find("%s" .. WAIT .. "%s") ~= nil
end

local function without_wait(comment)
  local text = " " .. comment .. " "
  while has_wait(text) do
    text = text:gsub("%s" .. WAIT .. "%s", " ")
  end
  return text:match("^%s*(.-)%s*$")
end

local function with_wait(comment)
  local text = without_wait(comment)
  return text == "" and WAIT or text .. " " .. WAIT
end

-- Writes the options into the comment; returns what contradicts them there. Users who set by hand what the options
-- hand over get no further than by writing the comment.
local function take_options(job)
  local given, contradiction = {}, nil
  for _, entry in pairs(job.spank_job_env or {}) do
    local name, value = entry:match("^([A-Z_]+)=(.*)$")
    given[name or ""] = value
  end
  for _, option in ipairs(OPTIONS) do
    local key, value = option[2], given[option[1]] or ""
    if value:match("^" .. VALUES[key] .. "$") then
      local there = value_of(job.comment, key)
      if there == nil then
        job.comment = ((job.comment or "") .. " " .. key .. value):match("^%s*(.*)$")
      elseif there ~= value then
        contradiction = string.format("the comment and the option do not agree on %s%s: give one of them", key, value)
      end
    end
  end
  return contradiction
end

-- Excludes what the client that has submitted the job cannot bear; an owner who names methods knows better. Returns what
-- its user is told.
local MOST_LOOKED_AT = 2 ^ 16 -- bytes of a batch script
local function exclude_for_client(job)
  if value_of(job.comment, METHOD) or value_of(job.comment, EXCLUDE) then
    return nil
  end
  local script = (job.script or ""):sub(1, MOST_LOOKED_AT)
  for _, client in ipairs(CLIENTS) do
    if script:find("\n" .. client.line .. "\n", 1, true) then
      job.comment = ((job.comment or "") .. " " .. EXCLUDE .. client.excluded):match("^%s*(.*)$")
      return string.format("%s takes SUSPENDED for the end: not preempted by %s", client.name, client.excluded)
    end
  end
end

local function word_of(class)
  return class.bound and "real-time" or "urgent"
end

local function asks_in_vain_for_urgency(conf, job)
  for _, class in ipairs(classes(conf)) do
    local asked = (class.partition or "") ~= "" or (class.qos or "") ~= ""
    if class.urgent and asked and not fits(class.account, job.account) then
      if fits_partitions(class, job.partition) and fits(class.qos, job.qos) and not class_of(conf, job).urgent then
        local named = job.account and "this is one of " .. job.account or "this one names no account"
        return string.format("%s jobs are for the accounts %s; %s", word_of(class), class.account, named)
      end
    end
  end
end

-- What is wrong with the methods that a job names; and whether none is left.
local function wrong_methods(class, job)
  local chosen, excluded, wrong, left = value_of(job.comment, METHOD), value_of(job.comment, EXCLUDE) or "", {}, false
  if chosen == nil then
    return nil, false
  elseif chosen == "" then
    return METHOD .. "NAME[,NAME...] must stand once in the comment, with names of a-z, 0-9 and _", true
  elseif class.urgent then
    return METHOD .. chosen .. " has no effect: " .. word_of(class) .. " jobs are not preempted", false
  end
  for name in names(chosen) do
    if not listed(class.methods or "", name) then
      wrong[#wrong + 1] = name .. " is not offered"
    elseif listed(excluded, name) then
      wrong[#wrong + 1] = name .. " is excluded by " .. EXCLUDE .. excluded
    elseif not job.script and listed(NEEDS_SCRIPT, name) then
      wrong[#wrong + 1] = name .. " is for batch jobs"
    elseif not job.requeues and name == LOSES_WORK then
      wrong[#wrong + 1] = name .. " needs a job without --no-requeue"
    elseif spans_nodes(job) and listed(NEEDS_ONE_NODE, name) then
      wrong[#wrong + 1] = name .. " works on one node only"
    elseif job.is_part and not listed(TAKES_WHOLE, name) then
      wrong[#wrong + 1] = name .. " does not preempt heterogeneous jobs"
    else
      left = true
    end
  end
  if #wrong > 0 then
    return string.format("%s (offered to this job: %s)", table.concat(wrong, ", "), class.methods or "none"), not left
  end
end

local function wrong_exclusion(comment)
  return value_of(comment, EXCLUDE) == ""
    and EXCLUDE .. "NAME[,NAME...] must stand once in the comment, with names of a-z, 0-9 and _"
end

local function wrong_signal(comment)
  local signal = value_of(comment, SIGNAL)
  if signal and signal ~= "none" and not listed(SIGNALS, (signal:gsub("^B:", ""))) then
    return string.format("%sNAME must stand once in the comment, with none, or [B:] and one of %s", SIGNAL, SIGNALS)
  end
end

local function wrong_min_runtime(conf, comment)
  local seconds, most = value_of(comment, MIN_RUNTIME), math.floor(tonumber(conf.min_runtime_max) or 0)
  if seconds == nil then
    return nil
  elseif most == 0 then
    return MIN_RUNTIME .. "SECONDS is not offered"
  elseif (tonumber(seconds) or 0) < 1 or tonumber(seconds) > most then
    return string.format("%sSECONDS must stand once in the comment, with 1 to %d seconds", MIN_RUNTIME, most)
  end
end

-- A looser bound than that of its real-time class is all that a job may ask for (omfs:bound=NUMBER).
local function wrong_bound(class, comment)
  local asked, promised = value_of(comment, BOUND), tonumber(class.bound)
  if asked == nil then
    return nil
  elseif not promised then
    return BOUND .. asked .. " is for jobs of real-time classes; this one is of none"
  end
  local whole, part = asked:match("^(%d+)%.?(%d*)$") -- as omfsd reads it, at most six digits before and after the point
  if not whole or #whole > 6 or #part > 6 or asked:sub(-1) == "." or tonumber(asked) < promised then
    return string.format("%sNUMBER must stand once in the comment, with a number of at least %s", BOUND, class.bound)
  end
end

-- A word of ours in the comment that nobody knows, such as omfs:methods=, or one without its value, as where a blank
-- stands in it: its owner believes that it counts.
local function wrong_word(comment)
  for word in (" " .. (comment or "") .. " "):gmatch("%somfs:([%w_%-]*)%f[%s]") do
    if word == "" or VALUES["omfs:" .. word:lower() .. "="] then
      return string.format("omfs:%s has no value: write omfs:method=requeue, for instance, without blanks", word:lower())
    end
  end
  for word in (" " .. (comment or "")):gmatch("%somfs:([%w_%-]+)=") do
    local key = "omfs:" .. word:lower() .. "="
    if not VALUES[key] and key ~= REPORT then
      local all = {}
      for _, option in ipairs(OPTIONS) do
        all[#all + 1] = option[2]
        if option[2]:sub(1, 7) == key:sub(1, 7) then -- "omfs:me"
          return string.format("omfs:%s= is unknown: it is %s", word:sub(1, 40), option[2])
        end
      end
      return string.format("omfs:%s= is unknown: there are %s", word:sub(1, 40), table.concat(all, ", "))
    end
  end
end

local function log_to_user(text)
  slurm.log_user("%s", "omfs: " .. text)
end

-- The error for a job that cannot be honored, which is explained to its user; nil if it can.
local function refused(conf, job, contradiction)
  local vain = asks_in_vain_for_urgency(conf, job)
  local class = class_of(conf, job)
  local methods, none_left = wrong_methods(class, job)
  local wrong = contradiction or wrong_word(job.comment) or none_left and methods
  wrong = wrong or lists_qos(conf, job.qos) and "--qos takes one QOS here: how a job may be preempted goes by it"
  wrong = wrong or wrong_exclusion(job.comment) or wrong_signal(job.comment)
  wrong = wrong or wrong_min_runtime(conf, job.comment) or wrong_bound(class, job.comment)
  if vain or wrong or methods then
    log_to_user(vain or wrong or methods)
  end
  return vain and ACCESS_DENIED or wrong and NOT_SUPPORTED or nil
end

local function hold_unless_room(conf, asked, job, partitions)
  asked.urgent = class_of(conf, asked).urgent
  local is_ours = not asked.is_part and let_in(conf, asked, asked.requeues) -- held for its nodes, and counts for no account
  if not is_ours and not has_node_license(conf, asked.licenses) and guarded(needs_no_hold, conf, asked, job, partitions) then
    return slurm.SUCCESS
  elseif job.immediate == 1 then
    log_to_user("this job cannot start immediately: its account may not have the CPUs")
    return NODES_BUSY
  end
  job.priority = 0
  job.admin_comment = with_foreign(GATE, job.admin_comment or "")
  if not is_ours and not asked.urgent then
    guarded(give_to_held, conf, asked.account)
  end
  return slurm.SUCCESS
end

-- What of a request is longer than this script reads; nil if nothing is.
local function too_long(request)
  for name, most in pairs(LONGEST) do
    local value = name ~= "array_inx" and request[name]
    if type(value) == "string" and #value > most then
      return string.format("%s has %d characters, and may have %d", name, #value, most)
    end
  end
  local entries = request.spank_job_env_size
  if type(entries) == "number" and entries > MOST_SPANK then
    return string.format("there are %d options of SPANK plug-ins, and may be %d", entries, MOST_SPANK)
  end
end

-- What a question says by options of salloc (slurm/question.py), as a request has it; "" if it does not say so.
local SAID_AS_IT_IS = {
  ["job-name"] = "name",
  partition = "partition",
  account = "account",
  qos = "qos",
  reservation = "reservation",
  nodelist = "req_nodes",
  constraint = "features",
  licenses = "licenses",
}
local SAID = {
  ntasks = function(job)
    return number_of(job.num_tasks)
  end,
  nodes = function(job)
    local least = number_of(job.min_nodes) or 1
    return string.format("%d-%d", least, number_of(job.max_nodes) or least)
  end,
  mincpus = function(job)
    return job.pn_min_cpus ~= 1 and number_of(job.pn_min_cpus, NO_VAL16)
  end,
  ["mem-per-cpu"] = function(job)
    local memory = number_of(job.min_mem_per_cpu)
    return memory and string.format("%dM", memory)
  end,
  mem = function(job)
    local memory = number_of(job.min_mem_per_node)
    return memory and string.format("%dM", memory)
  end,
  exclusive = function(job)
    return job.shared == JOB_SHARED_NONE and "yes" or number_of(job.shared, NO_VAL16)
  end,
  time = function(job)
    return job.time_limit == INFINITE and "UNLIMITED" or number_of(job.time_limit)
  end,
}
-- What no question asks for.
local UNSAID = { "array_inx", "dependency", "prefer", "exc_nodes", "tres_per_task", "comment" }
local UNSAID_NUMBERS = { "ntasks_per_node", "ntasks_per_core", "threads_per_core" }

-- Whether the request is that of these options, in all that decides on what it gets.
local function says(job, options)
  local permitted = {}
  for name, value in options:gmatch("%-%-([%w-]+)=?([^\n]*)\n") do
    permitted[name] = value
  end
  permitted.exclusive = permitted.exclusive and "yes"
  permitted.nodes = (permitted.nodes or ""):gsub("^(%d+)$", "%1-%1")
  for name, field in pairs(SAID_AS_IT_IS) do
    if (job[field] or "") ~= (permitted[name] or "") then
      return false
    end
  end
  for name, said in pairs(SAID) do
    local value = said(job) or ""
    if (type(value) == "number" and string.format("%d", value) or value) ~= (permitted[name] or "") then
      return false
    end
  end
  local is_wider = asks_for_any(BY_DEVICE, BY_SOCKET, job) or asks_for_any(UNSAID, UNSAID_NUMBERS, job)
  is_wider = is_wider or (number_of(job.cpus_per_task, NO_VAL16) or 1) > 1
  return not (is_wider or job.script or is_part(job) or is_for_later(job))
end

-- Whether omfsd's root process asks by this request if Slurm would start a job of this owner (slurm/question.py). The
-- copy is ranked before all other jobs, for else Slurm would not say. The nonce is good once, for the request that root
-- has written down: its owner can read it in salloc's environment, and gets nothing by it but the copy, which root
-- cancels by its name.
local FIRST = 2147483648 - 1750000000 -- slurm.h: NICE_OFFSET; beyond every band of omfsd's
local MOST_PERMIT = 2 ^ 18 -- a list of nodes may be long
local function takes_question(conf, job, uid)
  local nonce = (job.wckey or ""):match("^omfs:(%x+)$")
  if not nonce then
    return false
  end
  job.wckey = ""
  local path = conf.wake:gsub("[^/]*$", "") .. "questions/" .. nonce
  local file = io.open(path, "r")
  local permit = file and file:read(MOST_PERMIT) or ""
  if file then
    file:close()
    os.remove(path)
  end
  local owner, last, options = permit:match("^(%d+) (%d+)\n(.*)$")
  if owner ~= uid or os.time() > tonumber(last) or job.immediate ~= 1 or too_long(job) or not says(job, options) then
    return false
  end
  job.nice = FIRST
  return true
end

-- What decides on its class.
local function placed(job, partitions)
  return {
    partition = job.partition or default_partition(partitions),
    account = job.account or job.default_account,
    qos = stored_qos(job.qos) or stored_qos(job.default_qos),
  }
end

local function submit(job, partitions, conf, living)
  local wrong = too_long(job)
  if wrong then
    log_to_user(wrong)
    return NOT_SUPPORTED
  end
  -- Only the gate and omfsd may write these.
  if mark_of(job.admin_comment) ~= "" then
    job.admin_comment = ""
  end
  if job.comment and has_wait(job.comment) then
    job.comment = without_wait(job.comment)
  end
  local asked = placed(job, partitions)
  if not is_in_scope(conf, asked) then
    return slurm.SUCCESS
  end
  local contradiction, told = take_options(job), exclude_for_client(job)
  if not is_batch(job) then
    job.requeue = 0 -- Slurm never requeues a job of salloc or srun, but shows it as if it would
  end
  if not living then
    return slurm.SUCCESS
  end
  if prefers_nodes(job) then
    log_to_user("--prefer counts nodes (*NUMBER): only --constraint may")
    return NOT_SUPPORTED
  end
  if expands(job) then
    log_to_user("--dependency=expand: is refused: CPUs would count for a job that was not let in for them")
    return NOT_SUPPORTED
  end
  if names_nodes_oddly(job) then
    log_to_user("--nodelist and --exclude take names of nodes, commas, and brackets, without blanks")
    return NOT_SUPPORTED
  end
  asked.comment = job.comment
  asked.licenses = job.licenses
  asked.nodes = job.req_nodes
  asked.features = job.features
  asked.min_nodes = job.min_nodes
  asked.script = is_batch(job)
  asked.requeues = job.requeue ~= 0
  asked.is_part = is_part(job)
  local refusal = refused(conf, asked, contradiction)
  if refusal then
    return refusal
  end
  if told then
    log_to_user(told)
  end
  -- A job that is submitted held passes here, and is held by the gate when its owner releases it.
  if job.priority ~= 0 and not may_start(conf, asked, asked.requeues) then
    return hold_unless_room(conf, asked, job, partitions)
  end
  return slurm.SUCCESS
end

local function changes_method(change, job)
  if change.comment == nil then
    return false
  end
  local function changes(key)
    local chosen = value_of(change.comment, key)
    return chosen == "" or chosen ~= value_of(job.comment, key)
  end
  return changes(METHOD) or changes(EXCLUDE)
end

-- omfs-run rewrites the comment too: what stood there before stays right.
local function asks_too_much(conf, change, job)
  local function is_new(key)
    return value_of(change.comment, key) ~= value_of(job.comment, key)
  end
  if change.comment == nil then
    return false
  end
  return is_new(MIN_RUNTIME) and wrong_min_runtime(conf, change.comment) ~= nil
    or is_new(BOUND) and wrong_bound(class_of(conf, job), change.comment) ~= nil
end

-- Slurm takes this from scontrol (ReqThreads=), and shows the CPUs that come with it only once the job runs.
local function changes_core_use(change)
  return number_of(change.threads_per_core, NO_VAL16) or number_of(change.ntasks_per_core, NO_VAL16)
end

-- Whether an owner's change of a job that is marked as ours would move it, raise it or change how it can be preempted.
local function touches_ours(change, job)
  return change.priority ~= NO_VAL
    or change.nice ~= NO_VAL
    or change.partition ~= nil
    or change.account ~= nil
    or change.qos ~= nil
    or change.req_nodes ~= nil
    or change.exc_nodes ~= nil
    or change.licenses ~= nil
    or changes_method(change, job)
end

-- Whether omfsd would have to decide anew: by the job's size, its account, or when it may start.
local function wants_other(change)
  local function given(field)
    local value = change[field]
    return value ~= nil and value ~= NO_VAL and value ~= NO_VAL16
  end
  return change.partition ~= nil
    or change.account ~= nil
    or change.qos ~= nil
    or change.licenses ~= nil
    or change.req_nodes ~= nil -- it gets CPUs on each of them
    or counts_nodes(change.features)
    or change.min_mem_per_node ~= nil -- with MaxMemPerCPU, more memory comes with more CPUs
    or change.min_mem_per_cpu ~= nil
    or change.begin_time ~= 0
    or given("min_cpus")
    or given("max_cpus")
    or given("min_nodes")
    or given("max_nodes")
    or given("num_tasks")
    or given("cpus_per_task")
    or given("ntasks_per_node")
    or given("pn_min_cpus")
    or given("shared")
    or given("sockets_per_node")
    or given("cores_per_socket")
    or change.cpus_per_tres ~= nil
    or change.mem_per_tres ~= nil
    or change.tres_per_job ~= nil
    or change.tres_per_node ~= nil
    or change.tres_per_socket ~= nil
    or change.tres_per_task ~= nil
end

-- Whether a stored job is a part of a heterogeneous one.
local function is_stored_part(job)
  return type(job.het_job_id) == "number" and job.het_job_id > 0
end

-- A stored job without a QOS has none; an empty one asks for the association's.
local function qos_after(change, job)
  if change.qos == nil then
    return (job.qos or ""):lower()
  end
  return stored_qos(change.qos)
end

local function after(change, job)
  return {
    comment = change.comment or job.comment,
    partition = change.partition or job.partition,
    account = change.account or job.account,
    qos = qos_after(change, job),
    licenses = change.licenses or job.licenses,
    nodes = change.req_nodes or job.req_nodes,
    features = change.features or job.features,
    min_nodes = number_of(change.min_nodes) or job.min_nodes,
    is_part = is_stored_part(job),
  }
end

-- Whether the hold is the gate's by the word in the comment. Where an administrator has held the job since, its owner
-- has released it in vain.
local function is_held_at_gate(job)
  return job.priority == 0 and has_wait(job.comment or "") and mark_of(job.admin_comment) ~= ADMIN_HELD
end

local function is_held_by_omfsd(job)
  return is_a(HELD, mark_of(job.admin_comment)) or is_held_at_gate(job)
end

-- Whether the exit code of its batch script, omfs-run's, had the job requeued and held.
local function is_special_exit(job)
  return math.floor(job.job_state / SPECIAL_EXIT) % 2 == 1
end

-- Of two omfsd of which one acts (docs/high-availability.md), an order of the earlier one comes too late. The one beside
-- this slurmctld writes beside its heartbeat which number its marks exceed; one that is alone writes nothing.
local function is_late(conf, new, gently)
  local file = open(conf.heartbeat:gsub("[^/]*$", "") .. EPOCH, "r", gently)
  local first = file and tonumber(file:read(20) or "")
  if file then
    file:close()
  end
  local number = tonumber(new:match(":(%d+)$") or "")
  return first ~= nil and number ~= nil and number <= first
end

-- The mark that omfsd expects of this job. An order for a heterogeneous one arrives for each part; where their marks
-- differ, it has that of each part in turn ("omfs:held:5,adm:rel").
local function expected_of(expected, job)
  if not is_stored_part(job) or not expected:find(",", 1, true) then
    return expected
  end
  local offset = 0
  for mark in (expected .. ","):gmatch("([^,]*),") do
    if offset == job.het_job_offset then
      return mark
    end
    offset = offset + 1
  end
end

-- Whether the mark outlasts omfsd's release: an administrator has released this part alone, and omfsd releases the
-- others. The job is not held again while it waits.
local function keeps_release(new, job)
  local waits = is_stored_part(job) and job.job_state % FLAGS == PENDING
  return waits and is_a(RELEASED, new) and mark_of(job.admin_comment) == ADMIN_RELEASED
end

-- Whether omfsd's order may be carried out: the job still has the mark that omfsd expects, and nobody else holds it.
local function is_valid(change, job, new, expected)
  local mark, state = mark_of(job.admin_comment), job.job_state
  local holds, releases = change.priority == 0, is_a(RELEASED, new)
  local is_free = job.priority ~= 0 or state % FLAGS == SUSPENDED -- a suspended job has priority 0 without being held
  if expected ~= mark and not (expected == GATE and is_held_at_gate(job)) then
    return false
  elseif holds and not is_a(HELD, new) or change.priority == INFINITE and not releases then
    return false
  elseif is_free or is_held_by_omfsd(job) then
    return true
  elseif not (holds or releases) then
    return is_a(STOPPING, mark) or not is_a(STOPPING, new) -- it would look as if omfsd held it once it has left
  end
  -- Slurm has held the job itself: when omfs-run's exit code had it requeued, or when it was requeued while suspended.
  if is_a(STOPPING, mark) then
    return releases or is_special_exit(job)
  end
  return releases and (is_a(RELEASED, mark) or mark == "" and is_special_exit(job))
end

-- Second by job in which its owner has changed a held job so that omfsd has to decide anew: an order that omfsd has
-- decided on before comes too late. One counts until omfsd has polled Slurm since, or for max_age at most.
local changed = {}

local function number_of_job(job)
  return number_of(job.array_job_id) or job.job_id
end

local function remember_change(conf, job)
  local oldest = os.time() - max_age(conf)
  for number, second in pairs(changed) do
    if second < oldest then
      changed[number] = nil
    end
  end
  changed[number_of_job(job)] = os.time()
end

local function is_changed_since_polled(conf, job, gently)
  local second = changed[number_of_job(job)]
  if not second or second < os.time() - max_age(conf) then
    return false
  end
  local found = admission(conf, gently)
  return not (found and is_observed(found, second))
end

-- Whether omfsd could take a hold of the job for one that it may end.
local function could_be_ours(job)
  return mark_of(job.admin_comment) ~= "" or is_held_at_gate(job) or is_special_exit(job)
end

-- Updates by omfsd or by an administrator.
local function modify_privileged(change, job, text, by_daemon, conf, gently)
  local stored = job.admin_comment or ""
  local mark, foreign = mark_of(stored), foreign_of(stored)
  local holds, releases = change.priority == 0, change.priority == INFINITE
  local is_announced = is_a(RELEASED, mark) or by_daemon and mark == ADMIN_RELEASED -- says already who releases it
  local ends_hold = releases and job.priority == 0 and not is_announced -- else Slurm takes it for nothing
  local new, expected, rest = (text or ""):match("^(omfs:[^%s?]+)%?(%S*)(.*)$")
  if not new then -- a release that omfsd has seen since it was dead, or that it makes for an operator (omfs release)
    new, expected, rest = (text or ""):match("^(" .. ADMIN_RELEASED .. ")%?(%S*)(.*)$")
  end
  local added = (text or ""):match("^%+=(.*)$") -- as `scontrol update AdminComment+=` sends it
  if added then
    text = foreign == "" and added or foreign .. "," .. added
  end
  if new then
    local is_outdated = is_a(RELEASED, new) and is_changed_since_polled(conf, job, gently)
    if is_outdated or is_late(conf, new, gently) or not is_valid(change, job, new, expected_of(expected, job)) then
      return ACCESS_DENIED
    end
    change.admin_comment = (keeps_release(new, job) and ADMIN_RELEASED or new) .. rest
  elseif by_daemon and releases and job.priority == 0 and is_changed_since_polled(conf, job, gently) then
    return ACCESS_DENIED
  elseif mark_of(text) ~= "" or by_daemon and releases and not (is_a(RELEASED, mark) or mark == ADMIN_RELEASED) then
    return ACCESS_DENIED
  elseif (holds or ends_hold) and could_be_ours(job) then
    change.admin_comment = with_foreign(holds and ADMIN_HELD or ADMIN_RELEASED, text or foreign)
  elseif text and (mark ~= "" or added) then
    change.admin_comment = with_foreign(mark == "" and "" or stored:match("^(.-) | ") or stored, text)
  end
  if (holds or releases) and has_wait(job.comment or "") then
    change.comment = without_wait(change.comment or job.comment) -- else a later hold would look like the gate's
  end
  return slurm.SUCCESS
end

-- Between the two orders of a release, Slurm takes a hold by anybody but an administrator and forgets it.
local function would_be_lost(change, job)
  return change.priority == 0
    and job.priority == 0
    and is_a(RELEASED, mark_of(job.admin_comment))
    and not has_wait(job.comment or "")
end

local function modify_by_operator(change, job)
  local ours = is_held_by_omfsd(job) or is_a(STOPPING, mark_of(job.admin_comment))
  if would_be_lost(change, job) or ours and (change.priority == 0 or change.priority == INFINITE) then
    log_to_user("omfsd holds this job; only an Administrator can hold or release it")
    return ACCESS_DENIED
  end
  return slurm.SUCCESS
end

local function may_go(conf, job, gently)
  if may_start(conf, job, false) then
    return true
  end
  local is_free = not class_of(conf, job).urgent and not has_node_license(conf, job.licenses)
  return is_free and guarded(owns_all, conf, job.account, gently)
end

-- Whether an owner would move a part of a heterogeneous job into or out of a reservation although no hold keeps the job
-- from starting: where parts differ in it, omfsd sets the whole aside while it waits. Nothing tells here whether the
-- change is for all parts.
local function parts_ways(change, job)
  local is_held = job.priority == 0 and job.job_state % FLAGS == PENDING
  local reservation = change.reservation
  return is_stored_part(job) and reservation ~= nil and reservation ~= (job.resv_name or "") and not is_held
end

-- Root cancels the copy of a question by its name (slurm/question.py).
local QUESTION = "omfs-question-"

local function modify_by_owner(change, job, conf, living, gently)
  if (job.name or ""):sub(1, #QUESTION) == QUESTION then
    return ACCESS_DENIED
  end
  local releases, mark = change.priority == INFINITE, mark_of(job.admin_comment)
  local later, waited = after(change, job), has_wait(job.comment or "")
  if not is_in_scope(conf, later) and mark == "" and not waited then
    if change.comment and has_wait(change.comment) then
      change.comment = without_wait(change.comment)
    end
    return slurm.SUCCESS
  end
  local raises = change.nice ~= NO_VAL and change.nice < job.nice
  local grows_unseen = prefers_nodes(change) or names_nodes_oddly(change) or changes_core_use(change)
  if lists_qos(conf, change.qos) or expands(change) then
    return ACCESS_DENIED
  end
  if raises or grows_unseen or parts_ways(change, job) or asks_too_much(conf, change, job) or would_be_lost(change, job) then
    return ACCESS_DENIED
  end
  -- A job that was let in because it is preemptible stays preemptible, running or not. Slurm does not show here whether
  -- it would requeue the job: that is known only of one that is in because of it.
  local before = after({}, job)
  local in_by_requeue = let_in(conf, before, true) and not let_in(conf, before, false)
  if let_in(conf, before, true) and not let_in(conf, later, in_by_requeue and change.requeue ~= 0) then
    return ACCESS_DENIED
  end
  if (is_a(HELD, mark) or is_a(STOPPING, mark)) and touches_ours(change, job) and (living or not releases) then
    return ACCESS_DENIED
  end
  if (change.licenses ~= nil or change.req_nodes ~= nil) and has_node_license(conf, job.licenses) then
    return ACCESS_DENIED
  end
  local starts_anew = job.priority ~= 0 and job.job_state == PENDING and wants_other(change)
  if job.priority == 0 and job.job_state % FLAGS == PENDING and wants_other(change) then
    remember_change(conf, job)
  end
  if change.priority == 0 then
    if waited then
      change.comment = without_wait(change.comment or job.comment) -- held by its owner again: no longer by the gate
    end
  elseif (releases and job.priority == 0 or starts_anew) and living and not may_go(conf, later, gently) then
    if releases and mark == ADMIN_HELD then
      return ACCESS_DENIED -- the hold is not the gate's to take over
    end
    -- Keep or set a hold, and mark it as not the owner's: from now on the job is held by the gate.
    change.priority = 0
    change.comment = with_wait(change.comment or job.comment or "")
    guarded(give_to_held, conf, later.account, gently)
  elseif change.comment then
    change.comment = waited and with_wait(change.comment) or without_wait(change.comment)
  end
  return slurm.SUCCESS
end

-- Slurm hands over one update for every record of an array in turn, with what we wrote into it for the record before.
-- So what its sender wrote is put back first. Returns that; an empty text counts there, but cannot be put back.
local WRITTEN = { "admin_comment", "comment", "priority" }
local last = { sent = {}, written = {} }

local function copy(change)
  local fields = {}
  for _, name in ipairs(WRITTEN) do
    fields[name] = change[name]
  end
  return fields
end

local function put_back(change, uid)
  local update = tostring((getmetatable(change) or {})._job_desc) .. " of " .. uid
  local same = update == last.update
  for _, name in ipairs(WRITTEN) do
    same = same and change[name] == last.written[name]
  end
  if not same then
    last = { update = update, sent = copy(change), written = {} }
  end
  for _, name in ipairs(WRITTEN) do
    if change[name] ~= last.sent[name] then
      change[name] = last.sent[name] or ""
    end
  end
  return last.sent
end

local function is_privileged(conf, uid)
  return uid == conf.daemon_uid or listed(conf.privileged_uids, uid)
end

local function modify(change, job, uid, conf, living, gently)
  local wrong, sent, code = too_long(change), nil, nil
  if wrong and not is_privileged(conf, uid) then
    log_to_user(wrong)
    return ACCESS_DENIED
  end
  sent = put_back(change, uid)
  if listed(conf.operator_uids, uid) then
    code = modify_by_operator(change, job)
  elseif is_privileged(conf, uid) then
    -- Root's releases may be omfsd's or an administrator's where omfsd runs as root.
    code = modify_privileged(change, job, sent.admin_comment, uid == conf.daemon_uid and uid ~= "0", conf, gently)
  else
    code = modify_by_owner(change, job, conf, living, gently)
  end
  last.written = copy(change)
  return code
end

-- describe: returns what decides on the job's class.
local function may_be_urgent(conf, describe, ...)
  local fine, is_urgent = pcall(function(...)
    local job = describe(...)
    local stored = as_stored(job)
    return class_of(conf, job).urgent or stored and class_of(conf, stored).urgent
  end, ...)
  return not fine or is_urgent
end

-- One open and one close; slurmctld does not wait for omfsd.
local function wake(conf, is_urgent, gently)
  local file = open(is_urgent and conf.wake or conf.wake .. LATER, "a", gently)
  if file then
    file:close()
  end
end

local function now(gently)
  local conf = settings(gently)
  return conf, alive(conf, gently)
end

function slurm_job_submit(job, partitions, uid)
  local fine, conf, living = pcall(now)
  local code = conf
  if fine and living then
    local _, is_question = pcall(takes_question, conf, job, string.format("%d", uid))
    if is_question == true then
      return slurm.SUCCESS -- nobody's job to hold, and omfsd knows of it
    end
  end
  if fine then
    fine, code = pcall(submit, job, partitions, conf, living)
  end
  if living and (not fine or code == slurm.SUCCESS) then -- what is refused may be too long to be looked at
    pcall(wake, conf, may_be_urgent(conf, placed, job, partitions))
  end
  if fine then
    return code
  end
  slurm.log_error("omfs: job_submit.lua failed, job let in: %s", tostring(code))
  return slurm.SUCCESS
end

function slurm_job_modify(change, job, _partitions, uid)
  local gently = change.partition ~= nil or change.account ~= nil
  local fine, conf, living = pcall(now, gently)
  local code = conf
  uid = string.format("%d", uid)
  if fine then
    fine, code = pcall(modify, change, job, uid, conf, living, gently)
  end
  if living and not is_privileged(conf, uid) and (not fine or code == slurm.SUCCESS) then
    pcall(wake, conf, may_be_urgent(conf, after, change, job), gently) -- omfsd knows its own orders
  end
  if fine then
    return code
  end
  slurm.log_error("omfs: job_submit.lua failed, change let in: %s", tostring(code))
  return slurm.SUCCESS
end

local function find_missing()
  local conf = now()
  admission(conf)
  is_late(conf, "")
  for _, path in ipairs({ conf.wake, conf.wake .. LATER }) do
    local file = open(path, "r")
    if file then
      file:close()
    end
  end
end

pcall(find_missing)

return slurm.SUCCESS
