package wake_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
	"github.com/postlane-go/postlane/internal/wake"
)

func TestWordsReachTheirSubscribers(t *testing.T) {
	t.Parallel()
	b := setup(t, wake.Config{})
	delivery, subscription, message := b.signals[wake.Delivery], b.signals[wake.Subscription], b.signals[wake.Message]
	await(t, delivery) // connected: everybody is to look
	await(t, subscription)
	await(t, message)

	b.notify("unheard of", wake.Delivery, wake.Delivery, wake.Delivery, wake.Message)
	await(t, message) // in the order of the notifications, so the others have arrived
	b.is.Equal(len(delivery), 1)
	b.is.Equal(len(subscription), 0)

	b.notify("") // for everybody
	await(t, subscription)
	await(t, message)

	late, cancel := b.Subscribe(wake.Delivery)
	cancel()
	b.notify(wake.Delivery, wake.Message)
	await(t, message)
	b.is.Equal(len(late), 0)
}

func TestBC17TerminatedBackendIsReplaced(t *testing.T) {
	t.Parallel()
	b := setup(t, wake.Config{})
	signals := b.signals[wake.Message]
	await(t, signals)

	for range 3 {
		before := b.connects.Load()
		tag, err := b.other.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = $1", t.Name())
		b.is.NoErr(err)
		b.is.Equal(tag.RowsAffected(), int64(1))
		await(t, signals) // what came meanwhile is looked at
		b.is.True(b.Listening())
		b.is.Equal(b.connects.Load(), before+1)
		b.notify(wake.Message)
		await(t, signals)
	}
	b.is.True(strings.HasPrefix(await(t, b.logs), "WARN wake: not listening"))
	b.is.Equal(await(t, b.logs), "INFO wake: listening again")
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	address := database(t)
	p, through := newProxy(t, address, nil)
	b := setupAt(t, address, wake.Config{Conn: through, Heartbeat: 50 * time.Millisecond, Deadline: 2 * time.Second})
	signals := b.signals[wake.Message]
	await(t, signals)

	p.drop()
	await(t, signals) // from the connection that replaces it
	b.is.True(b.connects.Load() >= 2)
	b.notify(wake.Message)
	await(t, signals)
	b.is.True(strings.Contains(await(t, b.logs), "heartbeat"))
}

func TestQuietConnectionIsKept(t *testing.T) {
	t.Parallel()
	address := database(t)
	p, through := newProxy(t, address, nil)
	b := setupAt(t, address, wake.Config{Conn: through, Heartbeat: time.Millisecond})
	signals := b.signals[wake.Message]
	await(t, signals)
	for range 100 { // each between, or in the middle of, heartbeats
		b.notify(wake.Message)
		await(t, signals)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.is.Equal(len(p.open), 2)
}

func TestTransactionPoolerIsReported(t *testing.T) {
	t.Parallel()
	address := database(t)
	_, through := newProxy(t, address, pooled)
	b := setupAt(t, address, wake.Config{Conn: through, Deadline: time.Second})
	b.is.True(strings.Contains(await(t, b.logs), wake.ErrPooled.Error()))
	b.untilConnects(4)
	b.is.True(!b.Listening())
	b.is.Equal(len(b.logs), 0) // said once
}

func TestStandbyIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, wake.Config{Connect: standby(t)})
	b.is.True(strings.Contains(await(t, b.logs), wake.ErrStandby.Error()))
	b.untilConnects(5)
	b.is.Equal(len(b.logs), 0)
}

func TestFailureIsLoggedOncePerKind(t *testing.T) {
	t.Parallel()
	address := database(t)
	var mu sync.Mutex
	refused := true
	b := setupAt(t, address, wake.Config{Connect: func(ctx context.Context) (*pgx.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if refused {
			return nil, errors.New("refused")
		}
		return pgx.ConnectConfig(ctx, address)
	}})
	signals := b.signals[wake.Delivery]
	b.is.True(strings.Contains(await(t, b.logs), "refused"))
	b.untilConnects(5)
	b.is.Equal(len(b.logs), 0)
	mu.Lock()
	refused = false
	mu.Unlock()
	await(t, signals)
	b.is.Equal(await(t, b.logs), "INFO wake: listening again")
	b.stop()
	b.is.True(!b.Listening())
}

func TestNilHubIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var hub *wake.Hub
	signals, cancel := hub.Subscribe(wake.Delivery)
	defer cancel()
	is.Equal(len(signals), 0)
	is.True(!hub.Listening())
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	address, err := pgx.ParseConfig("")
	is.New(t).NoErr(err)
	connect := func(context.Context) (*pgx.Conn, error) { return nil, nil }
	for _, config := range []wake.Config{
		{},
		{Conn: address, Connect: connect},
		{Conn: address, Heartbeat: -1},
	} {
		_, err := wake.New(config)
		is.New(t).True(err != nil)
	}
	_, err = wake.New(wake.Config{Conn: address})
	is.New(t).NoErr(err)
}

// untilConnects waits for the n-th connect.
func (b *testBundle) untilConnects(n int32) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.connects.Load() < n {
		await(b.t, tick.C)
	}
}

// standby connects to what looks like a server that refuses LISTEN as a
// standby does.
func standby(t *testing.T) func(context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig("postgres://somebody@standby/?sslmode=disable")
	is.New(t).NoErr(err)
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		running.Go(func() {
			defer server.Close()
			backend := pgproto3.NewBackend(server, server)
			if _, err := backend.ReceiveStartupMessage(); err != nil {
				return
			}
			backend.Send(&pgproto3.AuthenticationOk{})
			backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			for backend.Flush() == nil {
				m, err := backend.Receive()
				if err != nil {
					return
				}
				switch m.(type) {
				case *pgproto3.Sync, *pgproto3.Query:
					backend.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "25006", Message: "cannot execute LISTEN during recovery"})
					backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				case *pgproto3.Terminate:
					return
				}
			}
		})
		return client, nil
	}
	return func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) }
}

// Behind PgBouncer a session of its pool would go on listening, for nobody.
func TestBehindPgBouncerInTransactionModeNothingListens(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	direct := pgtest.DirectURL(t)
	through := func(mode postgres.PoolMode) *pgx.ConnConfig {
		config, err := pgx.ParseConfig(pgtest.ThroughPooler(t, direct, mode) + "&default_query_exec_mode=exec")
		is.NoErr(err)
		return config
	}
	b := setupAt(t, through(postgres.TransactionMode), wake.Config{})
	is.True(strings.Contains(await(t, b.logs), "-listen-database-url")) // says what to set
	b.untilConnects(6)
	is.True(!b.Listening())
	conn, err := pgx.Connect(t.Context(), direct)
	is.NoErr(err)
	defer conn.Close(context.Background())
	var listens int
	is.NoErr(conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'").Scan(&listens))
	is.Equal(listens, 0)

	b = setupAt(t, through(postgres.SessionMode), wake.Config{})
	await(t, b.signals[wake.Message])
	b.notify(wake.Message)
	await(t, b.signals[wake.Message])
}
