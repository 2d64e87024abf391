package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is a running PostgreSQL. Its methods may be called from any
// goroutine.
type Server struct {
	config   Config
	binaries Binaries
	owner    *owner
	lock     *os.File // held while the directory is ours
	password string

	mu      sync.Mutex // one of Stop, Restart at a time
	port    int
	process *process // nil once stopped
}

// Start runs a server and returns when it answers. It goes on with the data
// in config.Dir, or makes a new database cluster there. ctx bounds the start
// only.
//
// Without server binaries on this machine the error is ErrNoPostgres.
func Start(ctx context.Context, config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(config.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, lock: lock, port: config.Port}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.owner, err = ownerOf(s.config.User); err != nil {
		return err
	}
	if s.binaries, err = s.config.find(); err != nil {
		return err
	}
	if !hasData(s.config.Dir) {
		if err := initdb(ctx, s.config.Dir, s.binaries, s.owner, !s.config.NoSync); err != nil {
			return err
		}
	}
	if s.password, err = readPassword(s.config.Dir); err != nil {
		return err
	}
	if err := endOrphan(ctx, s.config.Dir); err != nil {
		return err
	}
	return s.run(ctx)
}

// run starts the server process and waits until it answers. What can go away
// by itself is tried again: a port that somebody took between the look for a
// free one and its use, and the last backends of a server that was killed.
func (s *Server) run(ctx context.Context) error {
	const tries = 20
	for try := 1; ; try++ {
		port := s.port
		if port == 0 {
			free, err := freePort(ctx)
			if err != nil {
				return err
			}
			port = free
		}
		process, err := s.launch(ctx, port)
		if err == nil {
			s.process, s.port = process, port
			return nil
		}
		passing := strings.Contains(err.Error(), "shared memory block") ||
			s.port == 0 && strings.Contains(err.Error(), "Address already in use")
		if !passing || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// launch is one try of run.
func (s *Server) launch(ctx context.Context, port int) (*process, error) {
	log, err := os.Create(s.LogFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := s.owner.command(filepath.Join(s.binaries.Dir, "postgres"), s.config.arguments(port)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	process, err := startProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid, ready := readPidFile(s.config.Dir); ready && pid == process.pid() {
			return process, nil
		}
		select {
		case <-process.done:
			return nil, fmt.Errorf("PostgreSQL %s did not start in %s:\n%s", s.binaries.Version, s.config.Dir, tail(s.LogFile()))
		case <-ctx.Done():
			process.stop(0)
			return nil, fmt.Errorf("PostgreSQL %s did not answer in time: %w\n%s", s.binaries.Version, ctx.Err(), tail(s.LogFile()))
		case <-tick.C:
		}
	}
}

// URL returns the address of a database of the server, for its superuser.
// "postgres" is the database that every server has.
func (s *Server) URL(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	address := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return address.String()
}

// Version returns the server's version, such as "15.18".
func (s *Server) Version() string { return s.binaries.Version }

// Binaries tells which installation the server is of.
func (s *Server) Binaries() Binaries { return s.binaries }

// Dir returns the data directory.
func (s *Server) Dir() string { return s.config.Dir }

// LogFile returns the path of what the server logged since it was started.
func (s *Server) LogFile() string { return filepath.Join(s.config.Dir, "server.log") }

// Done returns a channel that is closed when the server process that now runs
// has ended, whether by Stop or by itself.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return s.process.done
}

// Restart shuts the server down as Stop does and starts it again on the same
// port. Connections break, as they do when a real server restarts.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("postgres: Restart of a stopped server")
	}
	s.process.stop(s.config.StopTimeout)
	return s.run(ctx)
}

// Stop shuts the server down: open transactions are rolled back, data is
// written out. It returns when the process has ended, and may be called any
// number of times. The data directory stays.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	s.process.stop(s.config.StopTimeout)
	s.process = nil
	return s.lock.Close()
}

// freePort returns a TCP port of the loopback address that was free just now.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("look for a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// tail returns the last lines of a log, for an error's text.
func tail(path string) string {
	const most = 2000
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(log) > most {
		log = log[len(log)-most:]
	}
	return strings.TrimSpace(string(log))
}
