package wake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says where to listen. One of Conn and Connect is needed.
type Config struct {
	// Conn is the address to connect to; of a pool it is
	// pool.Config().ConnConfig.Copy(). It must lead to PostgreSQL itself or to a
	// pooler in session mode.
	Conn *pgx.ConnConfig

	// Connect makes the connection instead of Conn, for instance where the
	// password changes.
	Connect func(context.Context) (*pgx.Conn, error)

	// Heartbeat is how long the connection may be quiet before it is asked
	// whether it is still there and still listening. Default: 10 s.
	Heartbeat time.Duration

	// Deadline is how long the answer to a heartbeat may take, and each step of
	// connecting. A connection that takes longer is replaced. Default: 5 s.
	Deadline time.Duration

	// Backoff is the pause before the first try to connect again. It doubles
	// with each try, up to MaxBackoff, until a connection has lasted longer than
	// a heartbeat; half of it is drawn by lot. Default: 200 ms.
	Backoff time.Duration

	// MaxBackoff is the longest pause between two tries. Default: 15 s.
	MaxBackoff time.Duration

	// Logger is told once when listening fails and once when it works again.
	// Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Conn == nil && c.Connect == nil:
		return c, errors.New("wake: Config needs Conn or Connect")
	case c.Conn != nil && c.Connect != nil:
		return c, errors.New("wake: Config has both Conn and Connect; give one")
	case c.Heartbeat < 0, c.Deadline < 0, c.Backoff < 0, c.MaxBackoff < 0:
		return c, errors.New("wake: a duration of Config is negative")
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 5*time.Second)
	c.Backoff = cmp.Or(c.Backoff, 200*time.Millisecond)
	c.MaxBackoff = max(cmp.Or(c.MaxBackoff, 15*time.Second), c.Backoff)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Conn != nil {
		conn := c.Conn.Copy()
		if conn.RuntimeParams["application_name"] == "" {
			conn.RuntimeParams["application_name"] = "postlane wake"
		}
		// Nothing is prepared: the connection runs three statements in its life.
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn.OnNotification = nil // would take them from WaitForNotification
		c.Connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, conn) }
	}
	return c, nil
}

// connect returns a connection, given time for it.
func (c Config) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}
