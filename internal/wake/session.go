package wake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/internal/pooler"
)

var (
	// ErrStandby: the connection leads to a read-only standby, where LISTEN
	// does not exist. It goes away when the standby is promoted.
	ErrStandby = errors.New("wake: a read-only standby cannot LISTEN; connect to the primary")

	// ErrPooled: LISTEN was accepted and then forgotten, which is what a
	// pooler in transaction or statement mode does.
	ErrPooled = errors.New("wake: LISTEN does not last on this connection, as behind a pooler in transaction mode; give a direct one (Listen of the Config, -listen-database-url), or live by polling (NoListen, -no-listen)")
)

// listen is one connection's life: connect, LISTEN, tell ready, pass
// notifications on until it fails or ctx ends.
func (h *Hub) listen(ctx context.Context, ready func()) error {
	conn, err := h.config.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if err := h.config.start(ctx, conn); err != nil {
		return err
	}
	ready() // after LISTEN: what is committed from here on is notified
	for {
		notification, err := h.wait(ctx, conn)
		switch {
		case err == nil:
			h.signal(Word(notification.Payload))
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) && !conn.IsClosed(): // quiet for a heartbeat
			if err := h.config.check(ctx, conn); err != nil {
				return err
			}
		default:
			return fmt.Errorf("wait for a notification: %w", err)
		}
	}
}

// wait returns the next notification; after a heartbeat without one, an error
// that is a timeout, and the connection lives on.
func (h *Hub) wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Heartbeat)
	defer cancel()
	return conn.WaitForNotification(ctx)
}

// start makes conn listen and makes sure that it does.
func (c Config) start(ctx context.Context, conn *pgx.Conn) error {
	// Before LISTEN: on a session of the pooler's it would stay, for nobody.
	if shared, err := pooler.Shared(ctx, conn, c.Connect); err == nil && shared {
		return ErrPooled
	}
	if err := c.exec(ctx, conn, "LISTEN "+pgx.Identifier{Channel}.Sanitize()); err != nil {
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "25006" { // read_only_sql_transaction
			return fmt.Errorf("%w (%w)", ErrStandby, err)
		}
		return fmt.Errorf("LISTEN: %w", err)
	}
	if err := c.check(ctx, conn); err != nil {
		return err
	}
	return c.probe(ctx, conn)
}

// check asks the session itself whether it still listens. The answer also
// proves that both directions of the connection work.
func (c Config) check(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	var listens bool
	err := conn.QueryRow(ctx, "SELECT count(*) > 0 FROM pg_listening_channels() c WHERE c = $1", Channel).Scan(&listens)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if !listens {
		return ErrPooled
	}
	return nil
}

// probe finds a pooler that let LISTEN through but will not pass
// notifications on. A session that is PostgreSQL's own reports the process id
// that it was opened with. Any other has something in between, and is sent a
// notification from a second connection, as a producer would.
func (c Config) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if pid == conn.PgConn().PID() {
		return nil
	}
	producer, err := c.Connect(ctx)
	if err != nil {
		return fmt.Errorf("probe: connect: %w", err)
	}
	defer closeConn(producer)
	if err := c.exec(ctx, producer, "SELECT pg_notify($1, 'probe')", Channel); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if _, err := conn.WaitForNotification(ctx); err != nil { // anybody's will do
		return fmt.Errorf("%w (%w)", ErrPooled, err)
	}
	return nil
}

func (c Config) exec(ctx context.Context, conn *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	_, err := conn.Exec(ctx, sql, args...)
	return err
}

// closeConn says goodbye, but not for long: the other end may be gone.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is left to lose
}
