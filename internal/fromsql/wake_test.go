package fromsql_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestWhatIsWrittenWakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener, err := pgx.ConnectConfig(b.ctx, b.Config().ConnConfig)
	b.is.NoErr(err)
	defer listener.Close(b.ctx)
	_, err = listener.Exec(b.ctx, "LISTEN postlane")
	b.is.NoErr(err)
	do := func(sql string) {
		_, err := b.Exec(b.ctx, sql)
		b.is.NoErr(err)
	}

	do("SELECT postlane.enqueue('acme', 'invoice.paid', '{}', id => 'e1')")
	b.is.Equal(pgtest.Heard(t, b.Pool, listener), []string{"delivery"})
	do("SELECT postlane.stage('mail', '{}', id => 'm1')")
	b.is.Equal(pgtest.Heard(t, b.Pool, listener), []string{"message"})
	do("SELECT postlane.enqueue('acme', 'invoice.paid', '{}', id => 'e1'), postlane.stage('mail', '{}', id => 'm1')")
	b.is.Equal(len(pgtest.Heard(t, b.Pool, listener)), 0) // nothing new
	do("BEGIN; SELECT postlane.enqueue('acme', 'invoice.paid', '{}'); ROLLBACK")
	b.is.Equal(len(pgtest.Heard(t, b.Pool, listener)), 0)

	due := func(in string) {
		do("SELECT setval('postlane.wake_seq', floor(extract(epoch FROM clock_timestamp() + interval '" + in + "') * 1000000)::bigint)")
	}
	due("8 seconds") // many have just notified
	do("SELECT postlane.enqueue('acme', 'invoice.paid', '{}')")
	b.is.Equal(len(pgtest.Heard(t, b.Pool, listener)), 0)
	due("1 hour") // a clock was set back
	do("SELECT postlane.enqueue('acme', 'invoice.paid', '{}')")
	b.is.Equal(pgtest.Heard(t, b.Pool, listener), []string{"delivery"})
	var waits bool
	b.is.NoErr(b.QueryRow(b.ctx, "SELECT last_value < extract(epoch FROM clock_timestamp()) * 1000000 + 1000000 FROM postlane.wake_seq").Scan(&waits))
	b.is.True(waits)
}
