//go:build unix && !linux

package postgres

import (
	"os/exec"
	"syscall"
)

// endWithParent does nothing here: a server whose process was killed goes on
// until the next Start on its directory ends it.
func endWithParent(*syscall.SysProcAttr) {}

func (o *owner) switchedCommand(path string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(path, arguments...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)},
	}
	return cmd
}
