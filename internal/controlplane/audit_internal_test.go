// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A watch counts once, when it starts. Requests before since do not count, and an incomplete line is left for the next call.
func TestParseAudit(t *testing.T) {
	line := func(second int, stage, verb string) string {
		return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":"u"},"userAgent":"a","objectRef":{"resource":"pods","subresource":"status",`+
			`"namespace":"n","name":"p"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:%02d.000000Z"}`, stage, verb, second)
	}
	text := line(1, "ResponseComplete", "get") + "\n" + line(2, "ResponseStarted", "watch") + "\n" + line(2, "ResponseComplete", "watch") + "\n" +
		line(3, "ResponseComplete", "patch") + "\n" + line(4, "ResponseComplete", "get")
	since := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	watch := Request{
		User: "u", UserAgent: "a", Verb: "watch", Resource: "pods", Subresource: "status", Namespace: "n", Name: "p", Code: 200, Time: since,
	}
	patch := watch
	patch.Verb, patch.Time = "patch", since.Add(time.Second)
	got, err := parseAudit([]byte(text), since)
	require.NoError(t, err)
	require.Equal(t, []Request{watch, patch}, got)
	_, err = parseAudit([]byte("{\n"), since)
	require.ErrorContains(t, err, "parse audit log")
	_, err = (&Plane{dir: t.TempDir()}).Requests(since)
	require.ErrorContains(t, err, "Options.Audit is not set")
}

// The error for an invalid record differs from the error for a missing control plane.
func TestOpenDamaged(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, recordName), []byte("{"), 0o600))
	_, err := Open(dir)
	require.ErrorContains(t, err, "parse "+filepath.Join(dir, recordName))
	require.NotErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, recordName), []byte(`{"pid":7}`), 0o600))
	_, err = Open(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "process 7 has ended")
}
