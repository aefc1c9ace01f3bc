// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"fmt"
	"sync"
)

// claims lets work on one pod happen one after the other, and keeps pods out of each other's way. A static pod that
// comes back has the UID that it had before, so that its cgroup may be wanted while the old one is being removed.
type claims struct {
	mu   sync.Mutex
	held map[string]chan struct{} // by UID; closed when it is given back
}

// take waits until no other call works on a pod.
func (c *claims) take(ctx context.Context, uid string) (release func(), err error) {
	for {
		c.mu.Lock()
		busy := c.held[uid]
		if busy == nil {
			mine := make(chan struct{})
			c.held[uid] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.held, uid)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for other work on the cgroup of pod %s: %w", uid, ctx.Err())
		}
	}
}
