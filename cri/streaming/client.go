// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// buffer is how many bytes from the client a stream holds that nobody has read.
const streamBuffer = 64 << 10

// errOver is what the readers of a client's streams get once its session is over.
var errSessionOver = errors.New("session is over")

// client is the client's end of an exec or attach, in whatever protocol.
type client struct {
	cri.Session

	conn       *conn
	closed     chan struct{}  // closed when nothing can be read from the client any more
	tasks      sync.WaitGroup // what reads from the client
	inputs     []*pipe.Pipe   // that tasks write to, or wait for
	sendStatus func(status)   // tells how the session has ended, and that it has
}

// open answers a request for exec or attach with an upgrade. An error of type *upgrade.Refusal, and any other before the connection
// is taken over, is to be answered.
func (s *session) openClient(w http.ResponseWriter, r *http.Request, o cri.StreamOptions) (c *client, taken bool, err error) {
	if upgrade.IsWebSocket(r) {
		protocol, refusal := upgrade.NegotiateWebSocket(r, commandWebSockets(r))
		if refusal != nil {
			return nil, false, refusal
		}
		return s.openWebSocket(w, r, o, protocol)
	}
	protocol, refusal := upgrade.NegotiateSPDY(r, []string{upgrade.ChannelV4, upgrade.ChannelV3, upgrade.ChannelV2, upgrade.ChannelV1})
	if refusal != nil {
		return nil, false, refusal
	}
	return s.openSPDY(w, o, protocol)
}

// commandWebSockets returns the protocols for exec and attach. With a signal that closes a stream among them there is no
// other, as in the kubelet.
func commandWebSockets(r *http.Request) []string {
	if upgrade.IsClosable(r) {
		return []string{upgrade.ChannelV5}
	}
	return []string{"", upgrade.ChannelV1, upgrade.Base64V1, upgrade.ChannelV4, upgrade.Base64V4}
}

// abort makes what reads from the client return.
func (c *client) abortInputs() {
	for _, in := range c.inputs {
		in.Abort(errSessionOver)
	}
}

// close tells the client how the session has ended, lets it read that, and closes its connection.
func (c *client) closeWithStatus(result *status) {
	c.abortInputs()
	if result != nil {
		c.sendStatus(*result)
	}
	c.conn.closeGracefully(c.closed)
	c.tasks.Wait()
}

// maxSize bounds what the client sends for one terminal size.
const maxSize = 4 << 10

// sizes decodes terminal sizes until there are no more. Who receives them gets the newest.
func decodeSizes(r io.Reader, to chan cri.TerminalSize) {
	defer close(to)
	limited := &io.LimitedReader{R: r}
	decoder := json.NewDecoder(limited)
	for {
		limited.N = maxSize
		var size cri.TerminalSize
		if err := decoder.Decode(&size); err != nil {
			_, _ = io.Copy(io.Discard, r)
			return
		}
		select {
		case <-to: // one that nobody has taken
		default:
		}
		to <- size // this is the only sender
	}
}

// await waits until the client has opened its streams.
func (c *client) awaitStreams(s *session, ready <-chan struct{}) error {
	t := time.NewTimer(s.server.opts.CreationTimeout)
	defer t.Stop()
	select {
	case <-ready:
		return nil
	case <-t.C:
		return fmt.Errorf("timed out waiting %v for client to create streams", s.server.opts.CreationTimeout)
	case <-c.closed:
		return errClientGone
	case <-s.ctx.Done():
		return s.endReason()
	}
}
