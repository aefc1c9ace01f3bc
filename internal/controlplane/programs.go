// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed81659283/nodeagent/internal/lab"
)

// RequiredEnv is an environment variable. With the value "required", tests fail instead of being skipped if there is no control
// plane.
const RequiredEnv = "NODEAGENT_CLUSTER"

// Version is the version of Kubernetes that tools/cluster/go.mod pins.
const Version = "v1.37.1"

// The names of the programs, and of the components of a [Plane].
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Proxy             = "kube-proxy"
	CoreDNS           = "coredns"
	kubeadm           = "kubeadm"
)

// The image repository in kubeadm's manifests, and its image tags of etcd and of CoreDNS.
const (
	repository = "nodeagent.test"
	etcdTag    = "3.7.0-0"
	coreDNSTag = "v1.14.6"
)

// Images returns the name of the container image of each program. The archive .lab/images/PROGRAM is written by make
// cluster-tools. Only the image of kubectl has a shell. That of kube-proxy has the iptables of this machine.
func Images() map[string]string {
	images := map[string]string{Etcd: repository + "/" + Etcd + ":" + etcdTag, CoreDNS: repository + "/coredns/" + CoreDNS + ":" + coreDNSTag}
	for _, name := range []string{APIServer, ControllerManager, Scheduler, Kubectl, Proxy} {
		images[name] = repository + "/" + name + ":" + Version
	}
	return images
}

// RequirePrograms returns the directory that contains the given programs. If a program is not built, it skips the test. If
// the environment variable [RequiredEnv] is "required", it fails the test instead.
func RequirePrograms(t testing.TB, programs ...string) string {
	t.Helper()
	home, err := lab.FindHome()
	dir := filepath.Join(home, "bin")
	for _, name := range programs {
		if err == nil {
			err = checkBuilt(filepath.Join(dir, name))
		}
	}
	if err == nil {
		return dir
	}
	skipOrFail(t, err)
	return ""
}

// skipOrFail skips the test for this reason. If the environment variable [RequiredEnv] is "required", it fails the test
// instead.
func skipOrFail(t testing.TB, reason any) {
	t.Helper()
	if os.Getenv(RequiredEnv) == "required" {
		t.Fatalf("no control plane, and %s says that one is required: %v", RequiredEnv, reason)
	}
	t.Skipf("no control plane: %v", reason)
}

// checkBuilt returns an error if there is no program at path.
func checkBuilt(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s is missing: run `make cluster-tools` once", path)
	}
	return nil
}
