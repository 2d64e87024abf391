package torture

import (
	"fmt"
	"syscall"
)

// mountDisk gives a directory a disk of its own.
func mountDisk(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", diskSize))
}

func unmountDisk(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
