-- omfsd's gate inside slurmctld (JobSubmitPlugins=lua, this file beside slurm.conf).
--
-- Slurm starts a waiting job as soon as CPUs are idle, also one that no rule lets us stop again. So while omfsd is
-- alive, such a job is held at submit (AdminComment "omfs:gate") and omfsd releases it when its account may have it.
-- While omfsd is not alive nothing is held: Slurm goes on without it.
--
-- Settings: "omfs_job_submit.conf" beside this file, lines "name = value", read at every submit:
--   heartbeat         = /run/omfs/heartbeat   omfsd writes the seconds since the epoch into it
--   wake              = /run/omfs/wake        is opened and closed whenever a job is submitted, changed or released, so
--                                             that omfsd looks at once
--   max_age           = 10                    seconds after which omfsd counts as gone
--   methods           = requeue,suspend,...   a job whose comment names one of these (omfs:method=NAME) is let in; by
--                                             default all that omfs-daemon brings along
--   let_in_partitions =                       jobs of these are let in: the site's rules let us stop them
--   let_in_accounts   =
--   let_in_qos        =
--   privileged_uids   = 0                     who may release and rank; add SlurmUser and operators
--   books             = ve_{node},mem_{node}  licences in which memory and devices are counted (docs/books.md): an
--                                             owner cannot change what his job has of them
--   any_licenses      = ve                    licences for a device on any node: such a job is held, whatever lets it
--                                             in, until omfsd has chosen its node
--
-- A comment that names methods counts, whatever the lists say. A job with --no-requeue is let in only by a method that
-- keeps its work; with JobRequeue=0 in slurm.conf, leave "requeue" out of methods.
--
-- The cost is two short files read per submit. A fault in here lets the job in and is logged: a broken gate must not
-- stop a cluster from working.

local NO_VAL, INFINITE = 4294967294, 4294967295 -- slurm.h: "not given"; a release arrives as INFINITE, a hold as 0
local NO_VAL16 = 65534
local PENDING = 0 -- enum job_states
local ACCESS_DENIED = 2002 -- slurm_errno.h
local MARK, GATE, STOPPED = "omfs:", "omfs:gate", "omfs:stopped"
local METHOD = "omfs:method="
local LOSES_WORK = "requeue" -- omfs_daemon/cluster/methods.py
-- Slurm refuses an AdminComment in an owner's update, so an owner's release is noted in the job's comment.
local WAITS = "omfs:wait"

local DEFAULTS = {
  heartbeat = "/run/omfs/heartbeat",
  wake = "/run/omfs/wake",
  max_age = "10",
  methods = "requeue,suspend,dmtcp,criu,application,pageout,ve_swap",
  let_in_partitions = "",
  let_in_accounts = "",
  let_in_qos = "",
  privileged_uids = "0",
  books = "",
  any_licenses = "",
}

local CONF = debug.getinfo(1, "S").source:gsub("^@", ""):gsub("[^/]*$", "") .. "omfs_job_submit.conf"

local function settings()
  local found = setmetatable({}, { __index = DEFAULTS })
  local file = io.open(CONF)
  if file then
    for line in file:lines() do
      local name, value = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
      if name then
        found[name] = value
      end
    end
    file:close()
  end
  return found
end

local function alive(conf)
  local file = io.open(conf.heartbeat)
  local beat = file and tonumber(file:read(20) or "")
  if file then
    file:close()
  end
  return beat ~= nil and math.abs(os.time() - beat) <= (tonumber(conf.max_age) or 10)
end

local function listed(list, word)
  return word ~= nil and word ~= "" and ("," .. list:gsub("%s", "") .. ","):find("," .. word .. ",", 1, true) ~= nil
end

local function all_listed(list, words)
  local any = false
  for word in (words or ""):gmatch("[^,]+") do
    any = true
    if not listed(list, word) then
      return false
    end
  end
  return any
end

-- The words of (start or space) omfs:method=a,b (space or end); nil without any. What omfsd might read otherwise
-- (chosen_methods in omfs_daemon/policy/rules.py) names nothing: "".
local function method_words(comment)
  comment = comment or ""
  local _, last = comment:find(METHOD, 1, true)
  if not last then
    return nil
  end
  local words = (" " .. comment .. " "):match("%s" .. METHOD .. "([a-z0-9_,]+)%s") or ""
  if comment:find(METHOD, last + 1, true) or ("," .. words .. ","):find(",,", 1, true) then
    return ""
  end
  return words
end

-- Whether omfsd may stop the job. requeues: Slurm would put it back into the queue (no --no-requeue).
local function let_in(conf, job, requeues)
  local words = method_words(job.comment)
  for name in (words or ""):gmatch("[^,]+") do
    if listed(conf.methods, name) and (requeues or name ~= LOSES_WORK) then
      return true
    end
  end
  return words == nil
    and requeues
    and (
      all_listed(conf.let_in_partitions, job.partition)
      or listed(conf.let_in_accounts, job.account)
      or listed(conf.let_in_qos, job.qos)
    )
end

-- Whether one of the licences ("ve_n1:2,fluent") is a book's, or one for any node.
local function has_license(list, licenses)
  for entry in (licenses or ""):gmatch("[^,;|]+") do
    local name = entry:match("^%s*([^:=%s]+)") or ""
    for template in list:gmatch("[^,%s]+") do
      local front, back = template:match("^(.-){node}(.-)$")
      local node = front and name:sub(1, #front) == front and name:sub(#front + 1)
      if name == template or (node and #node > #back and node:sub(#node - #back + 1) == back) then
        return true
      end
    end
  end
  return false
end

local function has_books(conf, licenses)
  return has_license(conf.books, licenses) or has_license(conf.any_licenses, licenses)
end

-- Whether the job must run on each node of which it wants something, and takes it from nobody else's books meanwhile.
-- Names only: a job with "n[1-2]" is placed by omfsd, as is one that is changed later, whose nodes Slurm does not show.
local function is_on_its_books(conf, job)
  for entry in (job.licenses or ""):gmatch("[^,;|]+") do
    if has_license(conf.books, entry) then
      local name, found = entry:match("^%s*([^:=%s]+)"), false
      for node in (job.nodes or ""):gmatch("[^,%s]+") do
        for template in conf.books:gmatch("[^,%s]+") do
          found = found or template:gsub("{node}", (node:gsub("%%", "%%%%"))) == name
        end
      end
      if not found then
        return false
      end
    end
  end
  return true
end

-- Whether Slurm may start the job on its own: it can be stopped, and names the nodes whose devices it wants.
local function may_start(conf, job, requeues)
  return let_in(conf, job, requeues)
    and not has_license(conf.any_licenses, job.licenses)
    and is_on_its_books(conf, job)
end

local function default_partition(partitions)
  for name, partition in pairs(partitions) do
    if partition.flag_default == 1 then
      return name
    end
  end
end

local function is_marked(text, mark)
  mark = mark or MARK
  return text ~= nil and text:sub(1, #mark) == mark
end

local function has_waits(comment)
  return (" " .. comment .. " "):find("%s" .. WAITS .. "%s") ~= nil
end

local function without_waits(comment)
  local text = " " .. comment .. " "
  while has_waits(text) do
    text = text:gsub("%s" .. WAITS .. "%s", " ")
  end
  return text:match("^%s*(.-)%s*$")
end

local function with_waits(comment)
  local text = without_waits(comment)
  return text == "" and WAITS or text .. " " .. WAITS
end

local function submit(job, partitions)
  local conf = settings()
  -- What only the gate and omfsd may write, nobody brings along.
  if is_marked(job.admin_comment) then
    job.admin_comment = ""
  end
  if job.comment and has_waits(job.comment) then
    job.comment = without_waits(job.comment)
  end
  -- A job that its owner submits held gets past here, and to the gate when he releases it.
  if job.priority == 0 or not alive(conf) then
    return
  end
  local asked = {
    comment = job.comment,
    partition = job.partition or default_partition(partitions),
    account = job.account or job.default_account,
    qos = job.qos or job.default_qos,
    licenses = job.licenses,
    nodes = job.req_nodes,
  }
  if not may_start(conf, asked, job.requeue ~= 0) then
    job.priority = 0
    job.admin_comment = GATE
  end
end

local function changes_method(change, job)
  if change.comment == nil then
    return false
  end
  local words = method_words(change.comment)
  return words == "" or words ~= method_words(job.comment)
end

-- Whether an owner's change of a job that is marked as ours would move it, raise it or change how it can be stopped.
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

-- Whether the job would be another one to omfsd, which had looked at its size, its account and when it may start.
local function wants_other(change)
  local function given(field)
    local value = change[field]
    return value ~= nil and value ~= NO_VAL and value ~= NO_VAL16
  end
  return change.partition ~= nil
    or change.account ~= nil
    or change.qos ~= nil
    or change.licenses ~= nil
    or change.begin_time ~= 0
    or given("min_cpus")
    or given("max_cpus")
    or given("min_nodes")
    or given("max_nodes")
    or given("num_tasks")
    or given("cpus_per_task")
    or given("ntasks_per_node")
    or given("pn_min_cpus")
end

local function after(change, job)
  return {
    comment = change.comment or job.comment,
    partition = change.partition or job.partition,
    account = change.account or job.account,
    qos = change.qos or job.qos,
    licenses = change.licenses or job.licenses,
  }
end

-- The daemon's orders, and what an operator does by hand.
local function modify_privileged(change, job, living)
  if not has_waits(job.comment or "") or (change.priority ~= 0 and change.priority ~= INFINITE) then
    return
  end
  change.comment = without_waits(change.comment or job.comment) -- else a later hold would look like the gate's
  if change.priority == 0 and job.priority == 0 and living then
    change.admin_comment = change.admin_comment or GATE -- the daemon strengthens the gate's hold: it stays its own
  end
end

local function modify(change, job, uid)
  local conf = settings()
  local living, releases = alive(conf), change.priority == INFINITE
  if listed(conf.privileged_uids, string.format("%d", uid)) then
    modify_privileged(change, job, living)
    return slurm.SUCCESS
  end
  local later, waited = after(change, job), has_waits(job.comment or "")
  if change.nice ~= NO_VAL and change.nice < job.nice then
    return ACCESS_DENIED
  end
  -- A job that was let in because it can be stopped stays one that can be stopped, running or not. Slurm does not show
  -- here whether it would requeue the job: that is known only of one that is in because of it.
  local in_by_requeue = let_in(conf, job, true) and not let_in(conf, job, false)
  if let_in(conf, job, true) and not let_in(conf, later, in_by_requeue and change.requeue ~= 0) then
    return ACCESS_DENIED
  end
  if is_marked(job.admin_comment) and touches_ours(change, job) and (living or not releases) then
    return ACCESS_DENIED
  end
  if (change.licenses ~= nil or change.req_nodes ~= nil) and has_books(conf, job.licenses) then
    return ACCESS_DENIED
  end
  local starts_anew = job.priority ~= 0
    and job.job_state == PENDING
    and wants_other(change)
    and not is_marked(job.admin_comment, STOPPED)
  if change.priority == 0 then
    if waited then
      change.comment = without_waits(change.comment or job.comment) -- held by the owner again: wait no longer
    end
  elseif (releases and job.priority == 0 or starts_anew) and living and not may_start(conf, later, false) then
    -- Keep or set a hold, and tell omfsd that it is not the owner's: from now on the job is like a gated one.
    change.priority = 0
    change.comment = with_waits(change.comment or job.comment or "")
  elseif change.comment then
    change.comment = waited and with_waits(change.comment) or without_waits(change.comment)
  end
  return slurm.SUCCESS
end

-- Costs an open and a close; nobody waits for what omfsd then does.
local function wake()
  local conf = settings()
  local file = alive(conf) and io.open(conf.wake, "a")
  if file then
    file:close()
  end
end

function slurm_job_submit(job, partitions, _uid)
  local fine, fault = pcall(submit, job, partitions)
  pcall(wake)
  if not fine then
    slurm.log_error("omfs: job let in, the gate failed: %s", tostring(fault))
  end
  return slurm.SUCCESS
end

function slurm_job_modify(change, job, _partitions, uid)
  local fine, result = pcall(modify, change, job, uid)
  if not listed(settings().privileged_uids, string.format("%d", uid)) then
    pcall(wake) -- what omfsd itself has ordered, it knows
  end
  if fine then
    return result
  end
  slurm.log_error("omfs: change let in, the gate failed: %s", tostring(result))
  return slurm.SUCCESS
end

return slurm.SUCCESS
