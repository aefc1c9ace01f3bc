// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package worker turns a test program into the processes that a comparison with a real kernel needs: the shims of package process, the workers
// that use CPU, memory and page cache in a container, and the watch of the host. It is for tests of package nodetest.
//
// A test program that imports it becomes such a process before most of its packages are initialized: packages are initialized in the order of
// their import paths, and this one imports few. In User Mode Linux on a busy host, the initialization of the packages of Kubernetes takes
// seconds of CPU time per process, which pods and agent would lack.
package worker
