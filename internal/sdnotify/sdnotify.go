// Package sdnotify tells systemd how a service of Type=notify is doing.
//
// The protocol is a datagram of lines to the socket that NOTIFY_SOCKET names; see
// sd_notify(3). Without one, which is everywhere but under systemd, all of it does
// nothing.
package sdnotify

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Supervisor is the systemd that started this process. The zero value is none.
type Supervisor struct {
	socket string
	// watchdog is after how long without a sign of life the process is killed; 0: never.
	watchdog time.Duration
}

// FromEnv returns the Supervisor that the environment names. What it says about the
// watchdog of another process is ignored.
func FromEnv() Supervisor {
	s := Supervisor{socket: os.Getenv("NOTIFY_SOCKET")}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
			s.watchdog = time.Duration(us) * time.Microsecond
		}
	}
	return s
}

// Notify tells one or more lines, such as READY=1.
func (s Supervisor) Notify(lines string) error {
	if s.socket == "" {
		return nil
	}
	// net makes a leading @ the NUL of an abstract socket.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("sdnotify: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(lines)); err != nil {
		return fmt.Errorf("sdnotify: %w", err)
	}
	return nil
}

// Watch gives signs of life until ctx ends, twice in the watchdog's time, as long as
// alive returns nil: a process that no longer answers is killed and started again.
// alive has until the next sign. It returns at once where no watchdog is set.
func (s Supervisor) Watch(ctx context.Context, alive func(context.Context) error) {
	if s.socket == "" || s.watchdog == 0 {
		return
	}
	beat := time.NewTicker(s.watchdog / 2)
	defer beat.Stop()
	for {
		check, cancel := context.WithTimeout(ctx, s.watchdog/2)
		if alive(check) == nil {
			_ = s.Notify("WATCHDOG=1") // the next one may arrive
		}
		cancel()
		select {
		case <-beat.C:
		case <-ctx.Done():
			return
		}
	}
}
