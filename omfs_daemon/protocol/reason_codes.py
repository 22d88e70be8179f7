"""Why a program could not be stopped, started or brought back: every code that the launcher gives, in words."""

TEXT = {
    # The checkpoint directory and the scratch directory.
    "no_space": "there is not space enough for the checkpoint",
    "not_writable": "its checkpoint directory cannot be written",
    "bad_directory": "its checkpoint directory is not one that can be trusted",
    "busy": "another checkpoint or another run of the job is under way",
    "no_scratch": "a directory for the tool's own files cannot be used",
    # The tool.
    "tool_missing": "the checkpoint tool is not there, or too old",
    "tool_failed": "the checkpoint tool failed",
    "tool_hung": "the checkpoint tool took too long",
    "self_test": "the checkpoint tool does not work on this node",
    "coordinator_gone": "DMTCP's coordinator died, and the program with it",
    # The checkpoint.
    "not_verified": "the checkpoint is not complete",
    "bad_image": "the checkpoint lacks an image, or holds none",
    "no_mark": "the program did not say in time that its checkpoint is written",
    "pid_taken": "a process of the node has a process number that the program needs",
    # The program.
    "killed": "the program was killed from outside, through DMTCP's coordinator",
    "no_program": "there is no such program",
    "not_executable": "the program cannot be run",
    "not_caught": "the program has no handler for the signal that asks it for a checkpoint",
    "standard_stream": "the program's input or output is of a kind that cannot be brought back",
    "stray_process": "the program has processes that cannot be in the checkpoint",
    "unopenable_file": "the program has a file open that cannot be opened again",
    "woken": "the program was woken by others while its checkpoint was taken",
    "ended": "the program ended by itself",
}
