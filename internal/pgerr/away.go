// Package pgerr tells what kind of trouble an error of the database is.
package pgerr

import (
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Away reports whether an error means that the database is away, full or being
// restarted, as opposed to refusing what was asked.
func Away(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, net.ErrClosed):
		return true
	case errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, io.ErrUnexpectedEOF): // a server that died under its connections
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "08", "53", "57": // connection, resources, operator intervention
		return true
	}
	return ReadOnly(err)
}

// ReadOnly reports whether an error means that the database takes no writes: it is a
// standby, or set to be read only.
func ReadOnly(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "25006" // read_only_sql_transaction
}

// NotText reports whether an error means that a value is no text that the database can
// hold: not UTF-8, or with NUL. Ask it before [Away].
func NotText(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	// In the simple protocol a NUL ends the statement, and what follows it is too much for
	// the message. The code alone is any breach of the protocol; a pooler uses it for more.
	return ok && (pg.Code == "22021" || pg.Code == "08P01" && pg.Routine == "pq_getmsgend")
}

// Standby reports whether an error is one that a standby makes and its primary would not:
// it is away, or broke off a read to go on replaying.
func Standby(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "40001": // conflict with recovery
			return true
		case "57014": // took too long, and would there too
			return false
		}
	}
	return Away(err)
}
