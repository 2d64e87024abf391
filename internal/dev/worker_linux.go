package dev

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the worker when this process is killed, which leaves it no time to.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
