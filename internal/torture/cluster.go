package torture

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/postgres"
)

// cluster is a primary and its synchronous standby. Its methods are called by one
// goroutine at a time, but for addr and connect.
type cluster struct {
	nodes [2]*node

	mu      sync.Mutex
	primary int
	host    string // of the primary
}

// node is a place for a server, with a disk of its own if the machine allows it.
type node struct {
	dir    string // of the disk
	disk   bool   // it is one, and can be full
	server *postgres.Server
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

func startCluster(ctx context.Context, dir string, disks bool) (*cluster, error) {
	c := &cluster{}
	for i := range c.nodes {
		n := &node{dir: filepath.Join(dir, fmt.Sprintf("node-%d", i+1)), disk: disks}
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return c, err
		}
		if disks {
			if err := mountDisk(n.dir); err != nil {
				return c, fmt.Errorf("a small disk for PostgreSQL: %w", err)
			}
		}
		c.nodes[i] = n
	}
	first := c.nodes[0]
	var err error
	if first.server, err = postgres.Start(ctx, first.config()); err != nil {
		return c, err
	}
	if err := c.lead(0); err != nil {
		return c, err
	}
	return c, c.attach(ctx)
}

func (n *node) config() postgres.Config {
	return postgres.Config{
		Dir: n.data(), MaxConnections: 150, SharedBuffers: "64MB", StopTimeout: 5 * time.Second,
		Settings: map[string]string{
			"max_wal_size": "192MB", "min_wal_size": "32MB", "wal_keep_size": "64MB",
			"wal_retrieve_retry_interval": "300ms", "wal_receiver_timeout": "3s", "wal_sender_timeout": "3s",
			// A client in a black hole must not keep its locks for ever.
			"idle_in_transaction_session_timeout": "10s",
		},
	}
}

// restart starts its server again, after it was shut down fast if it runs.
func (n *node) restart(ctx context.Context) error {
	if err := n.keepLog(); err != nil {
		return err
	}
	return n.server.Restart(ctx)
}

// keepLog appends the server's log to a file that neither a start of the server nor the
// end of its disk takes away.
func (n *node) keepLog() error {
	log, err := os.ReadFile(n.server.LogFile())
	if err != nil {
		return err
	}
	kept, err := os.OpenFile(n.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer kept.Close()
	_, err = kept.Write(log)
	return err
}

// lead makes a node the one that clients reach.
func (c *cluster) lead(i int) error {
	at, err := url.Parse(c.nodes[i].server.URL("postgres"))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.primary, c.host = i, at.Host
	return nil
}

// addr is where the primary is.
func (c *cluster) addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host
}

func (c *cluster) leader() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[c.primary]
}

func (c *cluster) follower() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[1-c.primary]
}

// url is the database by way of a proxy.
func (c *cluster) url(p *proxy) string {
	at, _ := url.Parse(c.leader().server.URL("postgres")) // it was parsed before
	at.Host = p.addr()
	return at.String()
}

// connect connects to the primary, waiting for it if need be.
func (c *cluster) connect(ctx context.Context) (*pgx.Conn, error) {
	var conn *pgx.Conn
	err := persist(ctx, func() (err error) {
		conn, err = pgx.Connect(ctx, c.leader().server.URL("postgres"))
		return err
	})
	return conn, err
}

// exec runs statements on the primary, each in a transaction of its own.
func (c *cluster) exec(ctx context.Context, statements ...string) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// attach makes the other node a standby of the primary, from nothing, and has commits
// wait for it from then on.
func (c *cluster) attach(ctx context.Context) error {
	standby, primary := c.follower(), c.leader()
	if standby.server != nil {
		if err := errors.Join(standby.server.Stop(), standby.keepLog()); err != nil {
			return err
		}
		standby.server = nil
	}
	if err := os.RemoveAll(standby.data()); err != nil {
		return err
	}
	var err error
	if standby.server, err = postgres.StartStandby(ctx, primary.server, "standby", standby.config()); err != nil {
		return err
	}
	if err := c.exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return c.synchronous(ctx)
}

// synchronous waits until the standby has all that the primary has now, and commits wait
// for it. Then nothing that anybody saw is lost with the primary.
func (c *cluster) synchronous(ctx context.Context) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var now string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&now); err != nil {
		return err
	}
	return persist(ctx, func() error {
		var n int
		err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= $1::text::pg_lsn", now).Scan(&n)
		if err == nil && n == 0 {
			err = errNoStandby
		}
		return err
	})
}

// crash ends the primary as a failing machine does, and leaves nothing of it running.
func (n *node) crash() error {
	pid, err := serverPid(n.data())
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return err
	}
	<-n.server.Done()
	return nil
}

// promote loses the primary, and has the standby take over.
func (c *cluster) promote(ctx context.Context) error {
	if err := c.leader().crash(); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, c.follower().server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_promote()"); err != nil {
		return err
	}
	return c.lead(1 - c.primary)
}

// stop ends both servers.
func (c *cluster) stop() {
	for _, n := range c.nodes {
		if n == nil {
			continue
		}
		if n.server != nil {
			_ = n.server.Stop()
			_ = n.keepLog()
		}
		if n.disk {
			unmountDisk(n.dir)
		}
	}
}
