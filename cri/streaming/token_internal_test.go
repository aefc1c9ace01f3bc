// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTokensAreValidOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	served := ""
	session := func(name string) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { served = name }
	}
	set := urlTokens{lifetime: time.Minute, limit: 2, pending: map[string]pendingSession{}}
	require.True(t, set.addSession(now, "/exec/a", session("a")))
	require.True(t, set.addSession(now.Add(time.Second), "/exec/b", session("b")))
	require.False(t, set.addSession(now.Add(59*time.Second), "/exec/c", session("c")), "the table is full")
	require.True(t, set.addSession(now.Add(time.Minute), "/exec/c", session("c")), "the first session has expired")
	require.Nil(t, set.takeSession(now, "/exec/a"))
	require.Nil(t, set.takeSession(now, "/attach/b"), "a token is valid for its own kind only")

	set.takeSession(now.Add(61*time.Second-1), "/exec/b")(nil, nil)
	require.Equal(t, "b", served)
	require.Nil(t, set.takeSession(now, "/exec/b"), "a token is valid once")
	require.Nil(t, set.takeSession(now.Add(2*time.Minute), "/exec/c"), "a token is invalid at the exact time of its expiry")
	require.Empty(t, set.pending)
}

// The table holds no more sessions than its limit, and used or expired sessions no longer count.
func TestTokensLimit(t *testing.T) {
	set := urlTokens{lifetime: time.Minute, limit: 10, pending: map[string]pendingSession{}}
	for i := range 1000 {
		now := time.Unix(int64(i), 0)
		set.addSession(now, fmt.Sprint(i), func(http.ResponseWriter, *http.Request) {})
		if i%3 == 0 {
			set.takeSession(now, fmt.Sprint(i))
		}
		require.LessOrEqual(t, len(set.pending), 10)
	}
	set.removeExpired(time.Unix(2000, 0))
	require.Empty(t, set.pending)
}
