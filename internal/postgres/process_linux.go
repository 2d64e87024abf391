package postgres

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Capabilities of linux/capability.h.
const capDacReadSearch = 2

// endWithParent has the kernel shut the server down (fast) when this process
// ends, even by a SIGKILL.
func endWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGINT
}

// switchedCommand returns a command that runs as the owner, who may pass
// through every directory on the way to the data: the place that root chose is
// often below one of root's own, such as a home directory or one made by
// mktemp. Reading follows from it and does no harm: the server serves nobody
// but the root that started it. The shell in between is needed because the
// capability is in force only after an exec.
func (o *owner) switchedCommand(path string, arguments ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$0" "$@"`, path}, arguments...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)},
	}
	if capable(capDacReadSearch) {
		cmd.SysProcAttr.AmbientCaps = []uintptr{capDacReadSearch}
	}
	return cmd
}

// capable tells whether this process has a capability to pass on. In a
// container root may lack it.
func capable(capability uint) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, found := strings.CutPrefix(line, "CapPrm:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set&(1<<capability) != 0
		}
	}
	return false
}
