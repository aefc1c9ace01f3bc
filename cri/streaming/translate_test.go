// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/spdy"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// newHastyRuntime returns a runtime that writes a megabyte to one stream before it accepts the last one, or refuses it with
// accept.
func newHastyRuntime(accept error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: "+r.Header.Get("X-Stream-Protocol-Version")+"\r\n\r\n")
		streams := map[string]*spdy.Stream{}
		mux, err := spdy.New(buffered.Reader, c, spdy.Options{Accept: func(one *spdy.Stream) error {
			streams[one.Header().Get("streamType")] = one
			if len(streams) < 3 {
				return nil
			}
			_, _ = streams["stdout"].Write(make([]byte, 1<<20))
			if accept == nil {
				go func() {
					if one.AwaitReply(context.Background()) == nil {
						_, _ = io.WriteString(streams["error"], `{"metadata":{},"status":"Success"}`)
						for _, kind := range []string{"stdout", "stderr", "error"} {
							_ = streams[kind].Close()
						}
					}
				}()
			}
			return accept
		}})
		if err == nil {
			_ = mux.Serve()
		}
	}
}

// Output that a runtime sends before it has accepted all streams does not block the acceptance. If the runtime does not accept a
// stream, the session is released.
func TestOutputBeforeAllStreamsAreAccepted(t *testing.T) {
	for name, accept := range map[string]error{"accepted": nil, "refused": io.ErrNoProgress} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestNode(t, "streamer", streaming.Options{})
			r.streamer.Override = newHastyRuntime(accept)
			var out, errs bytes.Buffer
			c := streamtest.Command{Protocol: "WebSocket v5.channel.k8s.io", Stdout: &out, Stderr: &errs}
			c.URL = r.sessionURL("exec", "uid/c", c, "x")
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			fault, err := c.Run(ctx)
			require.NoError(t, err)
			if accept == nil {
				assert.Contains(t, fault, "Success")
				assert.Equal(t, 1<<20, out.Len())
			} else {
				assert.Contains(t, fault, "opening stream stderr")
			}
			awaitNoSessions(t, r)
		})
	}
}
