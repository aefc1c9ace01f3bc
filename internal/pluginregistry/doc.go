// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package pluginregistry finds the plugins of a node, such as CSI drivers, by their sockets in a directory (plugins_registry) and
// registers them, as the kubelet does. It does not use the plugins: a [Handler] does.
//
//	w, err := pluginregistry.New(pluginregistry.Options{Dir: dir, Handlers: map[string]pluginregistry.Handler{"CSIPlugin": csi}})
//	err = w.Run(ctx)
//
// # Model
//
// A socket in the directory or below it is the registration service of one plugin. [Watcher.Run] calls its GetInfo, registers the
// plugin with the handler of its type, and sends it the result. When the socket is removed or replaced, the plugin is
// deregistered.
//
// The kernel reports changes of the directory, which is also read periodically. Pure code in plan.go decides the next steps from
// the current sockets and the previous steps.
//
// # Hostile plugins
//
// Each call of a plugin has a timeout: [plugingrpc.Timeout] to connect, [InfoTimeout] and [NotifyTimeout]. A hung plugin delays
// no other plugin. A failed registration is retried after 0.5 s, then with doubled pauses up to 2m2s. Symbolic links are not
// followed. The number of sockets and directories and the length of texts are limited.
//
// # Concurrency
//
// Run is called once and returns when all its goroutines have returned. It calls handlers from its goroutines, one call at a time
// per socket. Plugins stay registered when Run returns.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/pluginmanager of Kubernetes 1.37.1. Differences:
//
// - Symbolic links to sockets, and directories whose name starts with a dot, are ignored.
// - A registration is cancelled when its socket is removed; the kubelet waits for its end.
// - A socket without a listener fails at once, not after 10 s.
// - Plugins of a type without a handler are notified only if [Options].RefuseOthers is set, because another program may handle them.
// - A new socket in place of another one is tried after 0.5 s, even after many failures of the previous one.
//
// Test kit: none. A plugin is a gRPC server with one service.
package pluginregistry
