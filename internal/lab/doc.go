// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab starts a real containerd for tests: its own root, state, socket, bridge, subnet and registry, so
// that nothing else on the machine is touched and nothing stays behind. It installs nothing: the binaries and
// the images are those that `make lab` puts into the .lab directory of the checkout.
//
// # Model
//
// A test that only uses a runtime shares one with all other tests of the machine; a test that kills the
// runtime, counts what is left behind, or needs an empty one gets its own:
//
//	l := lab.Start(t)         // shared: started on demand, ended a minute after its last user
//	l := lab.StartPrivate(t)  // private: empty, may be killed, gone when the test ends
//
// Tests that share a lab tell their pods apart by namespace and UID, and remove their own.
//
// Where a lab cannot run (no root, no Linux, nothing built) the test is skipped with the reason. With
// NODEAGENT_LAB=required in the environment, as `make test` sets it for root, it fails instead.
//
// # On disk
//
// What must survive a kill of containerd is in .lab/instances/NAME: configuration, content, snapshots, logs and
// lab.json, the record of what runs. State and sockets are in /run/nodeagent-lab/ID, because the path of a unix
// socket is limited to 107 bytes and the path of a checkout is not. [Lab.Down] removes both.
//
// What stays on the machine after Down is what CNI plugins share between networks: the empty chains of portmap in
// the nat table, the directory /var/lib/cni, and net.ipv4.ip_forward=1, which the bridge plugin sets.
//
// # Concurrency
//
// A file lock serialises starting and stopping between processes. Test processes hold a shared lock on the lab
// they use, and a lab started on demand ends when nobody holds it.
package lab
