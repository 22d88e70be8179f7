# Shapes of shells: `bash shell_shapes.sh NAME`. Steps, faults, and the end as in stepping.py.
must() { [ "$1" = "$2" ] || { echo "$3: $1 and not $2" >>fault; exit 90; }; }
count() { echo "$1" >>out; }

number=0
case $1 in
"loop")  # builtins only
	while [ ! -e finish ]; do count $((++number)); for ((at = 0; at < 20000; at++)); do :; done; done
	;;
"children")  # a short program each step
	while [ ! -e finish ]; do
		sh -c "exit $((++number % 200))"
		must $? $((number % 200)) "an exit code"
		count $number
		sleep 0.02
	done
	;;
"substitution")  # the output of a short program each step
	while [ ! -e finish ]; do
		number=$((number + 1))
		must "$(echo $number | cat)" $number "the output of a command"
		count $number
		sleep 0.02
	done
	;;
"pipeline")  # two long programs
	(while [ ! -e finish ]; do echo $((++number)); sleep 0.02; done; exit 5) | (while read -r line; do count "$line"; done; exit 6)
	must "${PIPESTATUS[*]}" "5 6" "exit codes of a pipeline"
	;;
"one job")  # one subshell in the background that starts programs
	(while [ ! -e finish ]; do count $((++number)); sleep 0.02; done; exit 5) &
	wait $!
	must $? 5 "an exit code"
	;;
"jobs")  # several of them
	for job in 1 2 3; do
		(while [ ! -e finish ]; do echo $((++number)) >>out-$job; sleep 0.02; done; exit $job) &
		pids="$pids $!"
	done
	job=0
	while [ ! -e finish ]; do count $((++number)); sleep 0.02; done
	for pid in $pids; do wait $pid; must $? $((++job)) "an exit code"; done
	;;
"here document")  # a file that the shell makes for a program
	while [ ! -e finish ]; do
		number=$((number + 1))
		must "$(cat <<-END
		line $number
		END
		)" "line $number" "a here document"
		count $number
		sleep 0.02
	done
	;;
"trap")  # a signal's trap, raised each step
	told=0
	trap 'told=$((told + 1))' USR1
	while [ ! -e finish ]; do
		kill -USR1 $$
		number=$((number + 1))
		must $told $number "traps"
		count $number
		sleep 0.02
	done
	;;
*)
	exit 2
	;;
esac
exit 7
