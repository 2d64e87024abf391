package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/keys"
)

const (
	sessionCookie = "postlane_session"
	formCookie    = "postlane_form" // whose token the form to sign in carries
	noticeCookie  = "postlane_notice"
	themeCookie   = "postlane_theme"
	// databaseCookie names the database whose console is shown, where there are several.
	databaseCookie = "postlane_database"
)

// errSignedOut means that a request has no session, or one that is over.
var errSignedOut = errors.New("console: not signed in")

// open begins a session with a key, and sets its cookie.
func (c *Console) open(w http.ResponseWriter, r *http.Request, key string) error {
	token := rand.Text() + rand.Text()
	hash, keyHash := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(key))
	err := queries.ConsoleSessionCreate(r.Context(), c.Pool, &dbgen.ConsoleSessionCreateParams{
		Hash: hash[:], KeyHash: keyHash[:], Seconds: c.Session.Seconds(),
	})
	if err != nil {
		return fmt.Errorf("console: begin a session: %w", err)
	}
	setCookie(w, r, c.sessionCookie(), token, c.Session)
	return nil
}

// sessionCookie is the name of the session's cookie. A browser has a session in each of
// several databases.
func (c *Console) sessionCookie() string {
	if c.Database == "" {
		return sessionCookie
	}
	return sessionCookie + "_" + c.mark()
}

// mark stands for the database in cookies, whatever characters its name has.
func (c *Console) mark() string {
	sum := sha256.Sum256([]byte(c.Database))
	return hex.EncodeToString(sum[:4])
}

// session returns who makes a request, and the token that its forms carry.
func (c *Console) session(ctx context.Context, r *http.Request) (*keys.Caller, string, error) {
	cookie, err := r.Cookie(c.sessionCookie())
	if err != nil || cookie.Value == "" || len(cookie.Value) > 200 {
		return nil, "", errSignedOut
	}
	hash := sha256.Sum256([]byte(cookie.Value))
	row, err := queries.ConsoleSessionFind(ctx, c.Pool, hash[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "", errSignedOut
	}
	if err != nil {
		return nil, "", fmt.Errorf("console: find the session: %w", err)
	}
	token := formToken(cookie.Value)
	if row.KeyID == 0 { // the environment's key, as long as it is the same
		if c.operator == nil || subtle.ConstantTimeCompare(row.KeyHash, c.operator[:]) != 1 {
			return nil, "", errSignedOut
		}
		return &keys.Caller{ID: "operator", Name: "operator", Scope: keys.Write}, token, nil
	}
	if row.Revoked {
		return nil, "", errSignedOut
	}
	if row.Stale && r.Method == http.MethodPost { // a page that is looked at writes nothing
		if err := queries.KeyTouch(ctx, c.Pool, row.KeyID); err != nil {
			return nil, "", fmt.Errorf("console: note the use of a key: %w", err)
		}
	}
	return &keys.Caller{ID: "key_" + strconv.FormatInt(row.KeyID, 10), Name: row.Name, Tenant: row.Tenant, Scope: keys.Scope(row.Scope)}, token, nil
}

// end ends the session of a request, if it has one.
func (c *Console) end(w http.ResponseWriter, r *http.Request) error {
	defer setCookie(w, r, c.sessionCookie(), "", -1)
	cookie, err := r.Cookie(c.sessionCookie())
	if err != nil {
		return nil
	}
	hash := sha256.Sum256([]byte(cookie.Value))
	return queries.ConsoleSessionEnd(r.Context(), c.Pool, hash[:])
}

// formToken is what a form must carry to be taken for one of ours: only who knows the
// cookie can tell it, and it does not tell the cookie.
func formToken(cookie string) string {
	sum := sha256.Sum256([]byte("postlane form " + cookie))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// fromOurForm reports whether a request carries the token.
func fromOurForm(r *http.Request, token string) bool {
	return token != "" && subtle.ConstantTimeCompare([]byte(r.PostFormValue("token")), []byte(token)) == 1
}

// setCookie sets a cookie for the console alone; a negative age removes it.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where the console is reached by https, and a console on loopback need not be
		Name: name, Value: value, Path: Root, MaxAge: int(age.Seconds()), HttpOnly: true, Secure: isHTTPS(r), SameSite: http.SameSiteStrictMode,
	})
}

// isHTTPS reports whether the browser came by https, also through a proxy. Whoever lies
// about it makes their own cookies stricter.
func isHTTPS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
