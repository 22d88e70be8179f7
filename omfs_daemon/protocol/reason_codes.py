"""Why omfs-run could not checkpoint, start or restart a program: each of its codes, and the text for people."""

TEXT = {
    # The checkpoint directory and the scratch directory.
    "no_space": "there is not enough space for the checkpoint",
    "not_writable": "its checkpoint directory is not writable",
    "bad_directory": "its checkpoint directory cannot be trusted",
    "busy": "another checkpoint or another run of the job is in progress",
    "no_scratch": "the directory for the tool's own files cannot be used",
    # The tool.
    "tool_missing": "the checkpoint tool is missing or too old",
    "tool_failed": "the checkpoint tool failed",
    "tool_hung": "the checkpoint tool took too long",
    "several_nodes": "the job has several nodes, and the checkpoint tool works on one",
    "self_test": "the checkpoint tool does not work on this node",
    "coordinator_gone": "DMTCP's coordinator died, and the program with it",
    # The checkpoint.
    "not_verified": "the checkpoint is not complete",
    "bad_image": "the checkpoint has no image, or lacks one",
    "no_rehearsal": "its checkpoints cannot be rehearsed without harm, or not at all",
    "rehearsal_failed": "a copy of its checkpoint could not be restarted",
    "no_mark": "the program did not report in time that its checkpoint is written",
    "pid_taken": "a process on the node has a process ID that the program needs",
    "address_taken": "a port that the program needs is in use on the node",
    # The program.
    "killed": "the program was killed from outside, through DMTCP's coordinator",
    "no_program": "the program was not found",
    "not_executable": "the program cannot be executed",
    "not_caught": "the program has no handler for the checkpoint signal",
    "unfit": "the program has something open that its checkpoint would lose",
    "standard_stream": "the program's input or output is of a kind that cannot be restored",
    "stray_process": "the program has processes that cannot be in the checkpoint",
    "unopenable_file": "the program has a file open that cannot be opened again",
    "woken": "the program was resumed by others while its checkpoint was taken",
    "ended": "the program ended by itself",
}
