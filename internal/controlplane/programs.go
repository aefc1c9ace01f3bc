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

// RequiredEnv is the environment variable that turns skipping into failing, with the value "required".
const RequiredEnv = "NODEAGENT_CLUSTER"

// Version is that of Kubernetes, as tools/cluster/go.mod pins it.
const Version = "v1.37.1"

// The programs, which are also the names of the parts of a [Plane].
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	kubeadm           = "kubeadm"
)

// repository is where kubeadm's manifests have their images from, and etcdTag is the tag that they give to that of etcd.
const (
	repository = "nodeagent.test"
	etcdTag    = "3.7.0-0"
)

// Images returns the names of the images that `make cluster-tools` writes, by program. The archives in .lab/images are named
// for the programs. Kubectl comes with a shell, the others are alone in their images.
func Images() map[string]string {
	images := map[string]string{Etcd: repository + "/" + Etcd + ":" + etcdTag}
	for _, name := range []string{APIServer, ControllerManager, Scheduler, Kubectl} {
		images[name] = repository + "/" + name + ":" + Version
	}
	return images
}

// RequirePrograms returns the directory that these programs are in. The test is skipped, or fails where they are required, if one has
// not been built.
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

// missing skips the test, or fails it where a control plane is required.
func skipOrFail(t testing.TB, reason any) {
	t.Helper()
	if os.Getenv(RequiredEnv) == "required" {
		t.Fatalf("no control plane, and %s says that one is required: %v", RequiredEnv, reason)
	}
	t.Skipf("no control plane: %v", reason)
}

// built returns an error if a program is not there.
func checkBuilt(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s is missing: run `make cluster-tools` once", path)
	}
	return nil
}
