package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// diskSize is that of a node's disk, in bytes: room for the data of some minutes.
const diskSize = 1 << 30

// serverPid returns the process of the server that has a data directory.
func serverPid(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// fill leaves no room on a node's disk for as long as given. A server that this ended
// is there again afterwards.
func (n *node) fill(d time.Duration) error {
	ballast := filepath.Join(n.dir, "ballast")
	file, err := os.Create(ballast)
	if err != nil {
		return err
	}
	defer os.Remove(ballast)
	defer file.Close()
	block := make([]byte, 64<<10)
	for until := time.Now().Add(d); time.Now().Before(until); {
		_, err := file.Write(block)
		if errors.Is(err, syscall.ENOSPC) {
			time.Sleep(10 * time.Millisecond) // and what is freed meanwhile is filled too
		} else if err != nil {
			return fmt.Errorf("fill the disk: %w", err)
		}
	}
	return nil
}
