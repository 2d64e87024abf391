package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/postlane-go/postlane/internal/postgres"
)

// FromEnv names the environment variable that may say where the server has to
// come from: "container" or "binaries". Without it, from a container where a
// Docker engine has or can get the image, else from binaries of this machine.
const FromEnv = "POSTLANE_TEST_POSTGRES_FROM"

// PoolerEnv names the environment variable that, set to "pgbouncer", puts a
// PgBouncer in transaction mode in front of the server.
const PoolerEnv = "POSTLANE_TEST_POOLER"

// settingsKey differs where the environment asks for another server.
func settingsKey() string {
	var all []string
	for _, name := range []string{FromEnv, PoolerEnv, postgres.BinEnv, "POSTLANE_TEST_POSTGRES_IMAGE", "DOCKER_HOST"} {
		all = append(all, os.Getenv(name))
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\x00")))
	return hex.EncodeToString(sum[:4])
}

// running is a server that this process has started.
type running struct {
	ended <-chan struct{} // closed when it has ended
	stop  func()
	clean func() error // removes its data, after stop
}

// start starts a server in a state directory, and the pooler that the environment asks for.
func start(dir string) (Server, *running, error) {
	s, running, err := startServer(dir)
	if err != nil || os.Getenv(PoolerEnv) == "" {
		return s, running, err
	}
	if s.Pooler, err = running.addPooler(dir, s.URL); err != nil {
		running.stop()
		return Server{}, nil, errors.Join(err, running.clean())
	}
	s.Source += ", through PgBouncer"
	return s, running, nil
}

// addPooler starts a pooler that ends with the server, and returns its address.
func (r *running) addPooler(dir, server string) (string, error) {
	if kind := os.Getenv(PoolerEnv); kind != "pgbouncer" {
		return "", fmt.Errorf("%s must be pgbouncer, is %q", PoolerEnv, kind)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pooler, err := postgres.StartPooler(ctx, dir, server, postgres.TransactionMode)
	if err != nil {
		return "", err
	}
	stop := r.stop
	r.stop = func() {
		pooler.Stop()
		stop()
	}
	return pooler.Address(), nil
}

func startServer(dir string) (Server, *running, error) {
	switch from := os.Getenv(FromEnv); from {
	case "container":
		return fromContainer(dir)
	case "binaries":
		return fromBinaries(dir)
	case "":
	default:
		return Server{}, nil, fmt.Errorf("%s must be container or binaries, is %q", FromEnv, from)
	}
	s, running, noContainer := fromContainer(dir)
	if noContainer == nil {
		return s, running, nil
	}
	fmt.Fprintln(os.Stderr, "no container:", noContainer) // in the keeper's log
	s, running, err := fromBinaries(dir)
	if errors.Is(err, postgres.ErrNoPostgres) {
		return s, nil, fmt.Errorf("%w\nThere is no container because: %w", err, noContainer)
	}
	return s, running, err
}

func fromBinaries(dir string) (Server, *running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	data := filepath.Join(dir, "data")
	clean := func() error { return os.RemoveAll(data) }
	server, err := postgres.Start(ctx, postgres.Config{Dir: data, NoSync: true})
	if err != nil {
		// What a killed run left may be of another version.
		if err := clean(); err != nil {
			return Server{}, nil, err
		}
		server, err = postgres.Start(ctx, postgres.Config{Dir: data, NoSync: true})
	}
	if err != nil {
		return Server{}, nil, err
	}
	s := Server{
		URL:     server.URL("postgres"),
		Version: server.Version(),
		Source:  fmt.Sprintf("server binaries in %s", server.Binaries().Dir),
	}
	return s, &running{
		ended: server.Done(),
		stop:  func() { _ = server.Stop() }, // what is left is removed
		clean: clean,
	}, nil
}
