// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// ReasonNameConflict is the reason of the event about a second agent of the same node name. The kubelet has none.
const ReasonNameConflict = "NodeNameConflict"

// namesakePeriod is the least time between two reports of a second agent.
const namesakePeriod = time.Minute

// namesake reports that another agent has the name of this node, once a minute at most.
type namesake struct {
	node  string
	log   *slog.Logger
	event func(nodestatus.Event)

	mu   sync.Mutex // guards last
	last time.Time
}

// found reports another agent, and by what it was noticed.
func (n *namesake) found(now time.Time, how string) {
	n.mu.Lock()
	quiet := !n.last.IsZero() && now.Sub(n.last) < namesakePeriod
	if !quiet {
		n.last = now
	}
	n.mu.Unlock()
	if quiet {
		return
	}
	n.log.Error("another agent has the name of this node: stop one, or give it another name", "node", n.node, "how", how)
	call(n.event, nodestatus.Event{
		Type: corev1.EventTypeWarning, Reason: ReasonNameConflict,
		Message: fmt.Sprintf("Another agent has the name of node %s: %s", n.node, how),
	})
}

// call calls a hook that may be nil.
func call[T any](hook func(T), v T) {
	if hook != nil {
		hook(v)
	}
}

// poke puts a token into a channel that has room for one.
func poke(ch chan<- struct{}) {
	sleep.Wake(ch)
}
