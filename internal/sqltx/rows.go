package sqltx

import (
	"database/sql"

	"github.com/jackc/pgx/v5"
)

// rows are those of database/sql, read as pgx's are: errors close them.
type rows struct {
	pgx.Rows // nil: what database/sql does not tell

	rows *sql.Rows
	err  error
}

func (r *rows) Close() {
	if r.rows != nil {
		r.fail(r.rows.Close())
	}
}

func (r *rows) Err() error {
	if r.err == nil && r.rows != nil {
		r.fail(r.rows.Err())
	}
	return r.err
}

func (r *rows) Next() bool { return r.err == nil && r.rows.Next() }

func (r *rows) Scan(dest ...any) error {
	if err := r.rows.Scan(dest...); err != nil {
		r.fail(err)
		r.Close()
		return r.err
	}
	return nil
}

func (r *rows) fail(err error) {
	if r.err == nil {
		r.err = asPgError(err)
	}
}

// row is the first of rows.
type row struct {
	rows pgx.Rows
	err  error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
