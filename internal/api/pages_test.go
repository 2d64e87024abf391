package api_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/api"
)

// pages walks a list to its end and returns the ids and how many pages there were.
func (b *bundle) pages(key, path string) (ids []string, pages int) {
	b.t.Helper()
	cursor := ""
	for {
		at := path
		if cursor != "" {
			at += "&cursor=" + url.QueryEscape(cursor)
		}
		v := b.want(200, key, "GET", at, nil).object(b)
		pages++
		for _, item := range v["data"].([]any) {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		next, more := v["next_cursor"].(string)
		if !more {
			return ids, pages
		}
		cursor = next
	}
}

// assets names n distinct assets.
func assets(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("asset-%03d", i)
	}
	return list
}

// BC-46: paging neither repeats nor drops rows that share a time.
func TestBC46_PagesOfRowsWithOneTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	b.enqueue(assets(105)...)
	b.settle(delivery.Succeeded, b.claim(50)...)
	for _, table := range []string{"deliveries", "settled"} {
		b.exec(`UPDATE postlane.` + table + ` SET created_at = '2026-01-01'`)
	}
	var both [][]string
	for _, order := range []string{"newest", "oldest"} {
		ids, pages := b.pages(b.acme, path+"/deliveries?limit=10&order="+order)
		b.is.Equal(len(ids), 105)
		b.is.Equal(pages, 11)
		distinct := map[string]bool{}
		for _, id := range ids {
			distinct[id] = true
		}
		b.is.Equal(len(distinct), 105)
		both = append(both, ids)
	}
	for i, id := range both[0] {
		b.is.Equal(id, both[1][104-i])
	}
	// The last page says so although it is full.
	_, pages := b.pages(b.acme, path+"/deliveries?limit=35")
	b.is.Equal(pages, 3)
}

// A page of which the filter leaves little may be short or empty, and the cursor goes on.
func TestShortPages(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Search = time.Nanosecond })
	sub := b.subscribe(nil)
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
		SELECT $1, n, 'acme', 'e' || n, CASE WHEN n % 2500 = 7 THEN 'rare' ELSE 'usual' END, now(), now() AS settled_at, 1, 'delivered' FROM generate_series(1, 10000) n`, b.id(sub))
	for order, want := range map[string][]string{"newest": {"dlv_7507", "dlv_5007", "dlv_2507", "dlv_7"}, "oldest": {"dlv_7", "dlv_2507", "dlv_5007", "dlv_7507"}} {
		var got []string
		empty := 0
		for cursor, more := "", true; more; {
			v := b.want(200, b.acme, "GET", sub+"/deliveries?event_type=rare&order="+order+"&cursor="+cursor, nil).object(b)
			list := v["data"].([]any)
			for _, d := range list {
				got = append(got, d.(map[string]any)["id"].(string))
			}
			cursor, more = v["next_cursor"].(string)
			if more && len(list) == 0 {
				empty++
			}
		}
		b.is.Equal(got, want)
		b.is.True(empty > 3)
	}
}

// A cursor that was made up, changed or taken elsewhere is refused.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	b.enqueue("a", "b", "c")
	v := b.want(200, b.acme, "GET", path+"/deliveries?limit=1", nil).object(b)
	cursor := v["next_cursor"].(string)
	b.want(200, b.acme, "GET", path+"/deliveries?limit=2&cursor="+cursor, nil) // another size is fine
	twin := b.subscribe(nil)
	swapped := "A" + cursor[1:]
	if swapped == cursor {
		swapped = "B" + cursor[1:]
	}
	for _, at := range []string{
		path + "/deliveries?cursor=" + swapped, path + "/deliveries?cursor=" + cursor + "A", path + "/deliveries?cursor=" + cursor[:len(cursor)-1],
		path + "/deliveries?cursor=dlv_1", path + "/deliveries?cursor=%00", path + "/deliveries?state=dead&cursor=" + cursor,
		path + "/deliveries?order=oldest&cursor=" + cursor, twin + "/deliveries?cursor=" + cursor, path + "/streams?cursor=" + cursor,
		"/v1/subscriptions?cursor=" + cursor, "/v1/audit?cursor=" + cursor,
	} {
		got := b.do(b.acme, "GET", at, nil)
		b.refused("bad_cursor", got)
		b.is.Equal(got.status, 400)
	}
}
