package torture

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill a child when this process ends, however it does.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
