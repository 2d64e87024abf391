package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNoPooler says that this machine has no PgBouncer.
var ErrNoPooler = errors.New("PgBouncer is not installed: install the package pgbouncer")

// Pooler is a running PgBouncer.
type Pooler struct {
	process *process
	address string
}

// PoolMode says for how long a client of a Pooler has a session of the server.
type PoolMode string

// The modes of PgBouncer in which a transaction works.
const (
	TransactionMode PoolMode = "transaction"
	SessionMode     PoolMode = "session"
)

// StartPooler runs a PgBouncer in front of the server of a URL, for the role of that
// URL, whatever a client names. Its files go into dir, which must be there. ctx bounds
// the start only.
//
// Without PgBouncer on this machine the error is ErrNoPooler.
func StartPooler(ctx context.Context, dir, server string, mode PoolMode) (*Pooler, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return nil, ErrNoPooler
		}
	}
	owner, err := ownerOf("")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	settings, err := poolerSettings(server, port, mode)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(os.WriteFile(file, []byte(settings), 0o600), owner.own(file)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "pgbouncer.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := owner.command(path, file)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	process, err := startProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &Pooler{process: process, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.Dial("tcp", p.address); err == nil {
			return p, conn.Close()
		}
		select {
		case <-process.done:
			return nil, fmt.Errorf("PgBouncer did not start:\n%s", tail(log.Name()))
		case <-ctx.Done():
			p.Stop()
			return nil, fmt.Errorf("PgBouncer did not answer in time: %w\n%s", ctx.Err(), tail(log.Name()))
		case <-tick.C:
		}
	}
}

// URL returns the address through the pooler of a database that the URL names.
func (p *Pooler) URL(database string) (string, error) {
	address, err := url.Parse(database)
	if err != nil {
		return "", err
	}
	address.Host = p.address
	return address.String(), nil
}

// Address returns where it listens: host and port.
func (p *Pooler) Address() string { return p.address }

// Stop ends it, and with it the connections through it. It returns when it has ended.
func (p *Pooler) Stop() { p.process.stop(0) }

// poolerSettings returns PgBouncer's configuration.
func poolerSettings(server string, port int, mode PoolMode) (string, error) {
	to, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	password, _ := to.User.Password()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
max_client_conn = 1000
default_pool_size = 8
query_wait_timeout = 60
`, to.Hostname(), to.Port(), quote(to.User.Username()), quote(password), port, mode), nil
}
