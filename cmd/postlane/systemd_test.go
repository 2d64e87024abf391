package main

import (
	"bytes"
	"debug/elf"
	"encoding/base64"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// What is started by deploy/postlane.service.
func TestServeTellsSystemdHowItIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	address := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	is.NoErr(err)
	defer systemd.Close()
	read := func() string {
		buf := make([]byte, 1000)
		n, err := systemd.Read(buf)
		is.NoErr(err)
		return string(buf[:n])
	}
	cmd := exec.CommandContext(t.Context(), build(t), "serve", "-listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address, "WATCHDOG_USEC=200000",
		"POSTLANE_DATABASE_URL="+pgtest.URL(t),
		"POSTLANE_SECRET_KEY="+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)))
	var log bytes.Buffer
	cmd.Stderr = &log
	is.NoErr(cmd.Start())
	is.True(strings.HasPrefix(read(), "READY=1\nSTATUS=listening on 127.0.0.1:"))
	for range 3 {
		is.Equal(read(), "WATCHDOG=1")
	}
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	for line := read(); line != "STOPPING=1"; line = read() {
		is.Equal(line, "WATCHDOG=1")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
}

func TestTheProgramIsStaticAndTellsItsVersion(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	program := filepath.Join(t.TempDir(), "postlane")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file, err := elf.Open(program)
	is.NoErr(err)
	defer file.Close()
	for _, p := range file.Progs {
		is.True(p.Type != elf.PT_INTERP) // no dynamic linker
	}
	for _, flag := range []string{"-version", "--version"} {
		out, err := exec.CommandContext(t.Context(), build(t), flag).Output()
		is.NoErr(err)
		is.True(strings.HasPrefix(string(out), "postlane version "))
	}
}
