package dev

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// work runs another dispatcher in a process of its own until ctx ends. What it logs is
// in worker-N.log.
func (s *stage) work(ctx context.Context, n int) error {
	program := s.config.Executable
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	name := filepath.Join(s.config.Dir, fmt.Sprintf("worker-%d.log", n))
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	settings := s.settings
	settings.Listen = "127.0.0.1:0"
	cmd := exec.CommandContext(ctx, program, "serve")
	cmd.Env = settings.Environ(s.secretKey())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	dieWithParent(cmd)
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w; see %s", err, name)
	}
	return nil
}
