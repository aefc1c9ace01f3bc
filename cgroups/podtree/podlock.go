// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"context"
	"fmt"
	"sync"
)

// podLocks holds one lock per pod UID. A static pod that is removed and added again keeps its UID, so that without the lock its
// cgroup could be created while the previous one is being removed.
type podLocks struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // by UID; closed when the lock is released
}

// lockPod acquires the lock of the pod with this UID. The caller must call release. If ctx ends while it waits, it returns
// an error.
func (c *podLocks) lockPod(ctx context.Context, uid string) (release func(), err error) {
	for {
		c.mu.Lock()
		busy := c.busy[uid]
		if busy == nil {
			mine := make(chan struct{})
			c.busy[uid] = mine
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.busy, uid)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock of the cgroup of pod %s: %w", uid, ctx.Err())
		}
	}
}
