// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab starts a real containerd for tests, with its own directories, socket, bridge, subnet and registry, so that nothing
// else on the machine is changed. It installs nothing: `make lab` puts binaries and images into the .lab directory of the
// checkout.
//
//	l := lab.Start(t)         // shared: started on demand, stopped a minute after its last user
//	l := lab.StartPrivate(t)  // private: empty, may be killed, removed when the test ends
//
// Tests that only use a runtime share a lab. They distinguish their pods by namespace and UID, and remove them. A test that kills
// the runtime, counts remaining resources, or needs an empty runtime gets a private lab.
//
// If a lab cannot run (no root, no Linux, nothing built), the test is skipped with the reason. With NODEAGENT_LAB=required in the
// environment, as `make test` sets it for root, it fails instead.
//
// # Files
//
// Configuration, content, snapshots, logs and lab.json, the record of running processes, are in .lab/instances/NAME. State and
// sockets are in /run/nodeagent-lab/ID, because the path of a unix socket is limited to 107 bytes. [Lab.Down] removes both.
//
// After Down, resources that CNI plugins share between networks remain: the empty chains of portmap in the nat table, the
// directory /var/lib/cni, and net.ipv4.ip_forward=1 of the bridge plugin.
//
// # Concurrency
//
// A file lock serializes start and stop between processes. Test processes hold a shared lock on the lab that they use. An
// on-demand lab stops when no process holds the lock.
package lab
