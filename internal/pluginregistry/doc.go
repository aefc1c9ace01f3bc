// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginregistry finds the plugins of a node by their sockets in a directory (plugins_registry) and registers them, as the
// kubelet does: CSI drivers, device plugins. It does not know what a plugin is for, which is up to a [Handler].
//
// # Model
//
// A socket in the directory, or in one below it, is the registration service of one plugin. [Watcher.Run] asks it who it is,
// has the handler of its type register it, and tells it what came of that. When the socket is removed the plugin is deregistered;
// when there is another one in its place, that is done first.
//
//	w, err := pluginregistry.New(pluginregistry.Options{Dir: dir, Handlers: map[string]pluginregistry.Handler{"CSIPlugin": csi}})
//	err = w.Run(ctx)
//
// The kernel says when something in the directory changes, and the directory is read anyway from time to time. What to do is
// decided by pure code from what is there and what was done (plan.go).
//
// # Hostile plugins
//
// A socket gets so long to answer and no longer: [plugingrpc.Timeout] to connect, [InfoTimeout] to say who it is and
// [NotifyTimeout] to hear what came of it. One that hangs delays no other. After a failure it is asked again after 0.5 s, and then
// after twice as long up to 2m2s. Links are not followed, neither by the directory nor by the endpoint that a plugin names.
// The number of sockets and directories is bounded, and so is the text that a plugin sends.
//
// # Concurrency
//
// Run is called once and returns when all that it has started has returned. Handlers are called from goroutines of Run, for one
// socket one call at a time. Plugins stay registered when Run returns: an agent that ends is no reason to forget them.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/kubelet/pluginmanager at 1.37.1, but:
//
//   - Links to sockets are left alone, and so are directories whose name begins with a dot.
//   - A registration whose socket goes away is canceled; the kubelet waits for its end.
//   - A socket that nobody listens on fails at once instead of after 10 s.
//   - Plugins of a type without a handler are only told so where [Options].RefuseOthers says so: somebody else may handle them.
//   - A socket that is there anew is asked after 0.5 s even if its predecessor had failed for long.
//
// Test kit: none is needed; a plugin is a gRPC server with one service, and the handler in the tests is a recorder.
package pluginregistry
