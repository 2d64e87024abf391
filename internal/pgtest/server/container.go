package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fromContainer starts a server by the program of internal/pgtest/container,
// which is built for it: a module of its own, needed only where a Docker
// engine answers.
func fromContainer(dir string) (Server, *running, error) {
	if err := engineAnswers(); err != nil {
		return Server{}, nil, err
	}
	source, err := containerModule()
	if err != nil {
		return Server{}, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	program := filepath.Join(dir, "container")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = source
	if said, err := build.CombinedOutput(); err != nil {
		return Server{}, nil, fmt.Errorf("build %s: %w\n%s", source, err, said)
	}
	return runContainer(ctx, program)
}

// runContainer starts the program and waits for the container's URL. ctx
// bounds the start only.
func runContainer(ctx context.Context, program string) (Server, *running, error) {
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr // the keeper's log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe() // the container goes when it is closed
	if err != nil {
		return Server{}, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Server{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return Server{}, nil, err
	}
	kill := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	var said struct{ URL, Image, Error string }
	err = json.NewDecoder(stdout).Decode(&said)
	kill()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what went wrong is in the log
		close(ended)
	}()
	if said.Error != "" {
		err = errors.New(said.Error)
	}
	if err != nil {
		stdin.Close()
		<-ended
		return Server{}, nil, errors.Join(err, ctx.Err())
	}
	return Server{URL: said.URL, Source: "container of " + said.Image}, &running{
		ended: ended,
		stop: func() {
			stdin.Close()
			<-ended
		},
		clean: func() error { return nil },
	}, nil
}

// engineAnswers looks for a Docker engine at the usual places, so that nothing
// is built where there is none.
func engineAnswers() error {
	host := os.Getenv("DOCKER_HOST")
	sockets := []string{"/var/run/docker.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "docker.sock")}
	if home, err := os.UserHomeDir(); err == nil {
		sockets = append(sockets, filepath.Join(home, ".docker/run/docker.sock"), filepath.Join(home, ".docker/desktop/docker.sock"))
	}
	if host != "" {
		path, local := strings.CutPrefix(host, "unix://")
		if !local {
			return nil // the client will see
		}
		sockets = []string{path}
	}
	for _, socket := range sockets {
		if conn, err := net.DialTimeout("unix", socket, time.Second); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("no Docker engine answers at %s", strings.Join(sockets, ", "))
}

// containerModule returns the directory of the program's source: tests run in
// the directory of their package.
func containerModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		module := filepath.Join(dir, "internal/pgtest/container")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("internal/pgtest/container is not above the working directory")
		}
		dir = parent
	}
}
