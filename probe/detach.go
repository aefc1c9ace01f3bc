// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"time"
)

// detachTimeout is how long detached calls of probers may continue after the context of Run has ended. By then a runtime that
// counts the timeout of a command in whole seconds has ended the command.
const detachTimeout = time.Second

// detachKey is the context key of the function that implements [DetachContext].
type detachKey struct{}

// DetachContext returns a context for a call that must continue after the context of a probe has ended. An example is a CRI
// call that must not be cancelled. The argument ctx is the context that the [Prober] has received. The prober must call
// ended once, after the call has returned.
//
// If a [Set] runs the prober, the returned context ends one second after the context of Run, and Run waits until ended is
// called. Otherwise the returned context never ends.
func DetachContext(ctx context.Context) (call context.Context, ended func()) {
	if outlast, ok := ctx.Value(detachKey{}).(func(context.Context) (context.Context, func())); ok {
		return outlast(ctx)
	}
	return context.WithoutCancel(ctx), func() {}
}

// withDetachContext returns the context of Run with the function that implements [DetachContext]: a detached call outlives its
// probe, and Run waits for it.
func (l *loop) withDetachContext(ctx context.Context) context.Context {
	run := ctx
	return context.WithValue(ctx, detachKey{}, func(ctx context.Context) (context.Context, func()) {
		l.wg.Add(1)
		call, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(run, func() {
			timer := time.AfterFunc(detachTimeout, cancel)
			context.AfterFunc(call, func() { timer.Stop() })
		})
		return call, func() {
			stop()
			cancel()
			l.wg.Done()
		}
	})
}
