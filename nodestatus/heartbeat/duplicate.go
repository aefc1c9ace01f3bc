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

// ReasonNameConflict is the reason of the event about a second agent that uses the node name. The kubelet records no such event.
const ReasonNameConflict = "NodeNameConflict"

// minDuplicateGap is the shortest time between two reports of a second agent.
const minDuplicateGap = time.Minute

// duplicateName reports that a second agent uses the name of this node, by a log line and an event, at most once a minute.
type duplicateName struct {
	node  string
	log   *slog.Logger
	event func(nodestatus.Event)

	mu         sync.Mutex // guards lastReport
	lastReport time.Time
}

// reportDuplicate reports, at most once a minute, that a second agent uses the node name. The evidence is text, for example that
// it renews the lease.
func (n *duplicateName) reportDuplicate(now time.Time, evidence string) {
	n.mu.Lock()
	quiet := !n.lastReport.IsZero() && now.Sub(n.lastReport) < minDuplicateGap
	if !quiet {
		n.lastReport = now
	}
	n.mu.Unlock()
	if quiet {
		return
	}
	n.log.Error("another agent has the name of this node: stop one, or give it another name", "node", n.node, "how", evidence)
	callHook(n.event, nodestatus.Event{
		Type: corev1.EventTypeWarning, Reason: ReasonNameConflict,
		Message: fmt.Sprintf("Another agent has the name of node %s: %s", n.node, evidence),
	})
}

// callHook calls hook unless it is nil.
func callHook[T any](hook func(T), v T) {
	if hook != nil {
		hook(v)
	}
}

// signal wakes the goroutine that receives from ch, a channel with a buffer of one. It does not block.
func signal(ch chan<- struct{}) {
	sleep.Wake(ch)
}
