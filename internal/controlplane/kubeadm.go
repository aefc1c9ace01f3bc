// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Cluster is a control plane that kubeadm has prepared. It runs once an agent runs the pods in Manifests.
type Cluster struct {
	*Access

	// Root is the directory that replaces the root directory of the host in the manifests. Certificates are in
	// etc/kubernetes/pki, the data of etcd in var/lib/etcd.
	Root string
	// Manifests has the manifests of the static pods by file name, such as etcd.yaml.
	Manifests map[string]string
}

// kubeadmTimeout limits one phase of kubeadm. Most phases take a second.
const kubeadmTimeout = 2 * time.Minute

// kubeadmPhases returns the phases of kubeadm init that write the manifests of the static pods and the files mounted by
// them.
func kubeadmPhases() [][]string {
	return [][]string{{"certs", "all"}, {"kubeconfig", "all"}, {"etcd", "local"}, {"control-plane", "all"}}
}

// PrepareKubeadm writes the manifests of a control plane whose components are static pods of the node. advertise is an
// address of the host, not a loopback address. The test is skipped if kubeadm is not built, or if it does not run as root,
// which kubeadm needs for its flag --rootfs.
func PrepareKubeadm(t testing.TB, node string, advertise netip.Addr) *Cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		skipOrFail(t, "kubeadm takes root")
	}
	c, err := prepareCluster(t.Context(), filepath.Join(RequirePrograms(t, kubeadm), kubeadm), t.TempDir(), node, advertise)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prepareCluster runs the phases of kubeadm, with root as the root directory of kubeadm, and adapts the written manifests.
// program is the path of kubeadm, and advertise the address of the API server.
func prepareCluster(ctx context.Context, program, root, node string, advertise netip.Addr) (*Cluster, error) {
	free, err := freePorts(1 + len(fixedPorts()))
	if err != nil {
		return nil, err
	}
	server, ports := free[0], map[string]string{}
	for i, port := range fixedPorts() {
		ports[port] = strconv.Itoa(free[i+1])
	}
	// kubeadm gets its own root directory, because it writes to fixed paths.
	text := fmt.Sprintf(kubeadmConfig, advertise, server, node, Version, repository, ports[controllerPort], ports[schedulerPort])
	if err := os.WriteFile(filepath.Join(root, "kubeadm.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, phase := range kubeadmPhases() {
		if err := runPhase(ctx, program, root, phase); err != nil {
			return nil, err
		}
	}
	c := &Cluster{Root: root, Manifests: map[string]string{}}
	if err := c.adaptManifests(ports); err != nil {
		return nil, err
	}
	pki := filepath.Join(root, "etc", "kubernetes", "pki")
	authority, err := readAuthority(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return nil, err
	}
	c.Access = &Access{url: "https://" + netip.AddrPortFrom(advertise, uint16(server)).String(), ca: authority, dir: root}
	return c, c.openAdmin()
}

// runPhase runs a phase of kubeadm init. program is the path of kubeadm, and root its root directory.
func runPhase(ctx context.Context, program, root string, phase []string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeadmTimeout)
	defer cancel()
	args := append([]string{"init", "phase"}, phase...)
	cmd := exec.CommandContext(ctx, program, append(args, "--rootfs", root, "--config", "/kubeadm.yaml")...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run kubeadm %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kubeadmConfig has the defaults of kubeadm except for ports. kubeadm does not connect to the container runtime that it names.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %q, bindPort: %d}
nodeRegistration: {name: %q, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
imageRepository: %s
controllerManager: {extraArgs: [{name: secure-port, value: %q}]}
scheduler: {extraArgs: [{name: secure-port, value: %q}]}
`

// Fixed ports of the controller manager and the scheduler in kubeadm. The port of the API server can be configured.
const (
	controllerPort = "10257"
	schedulerPort  = "10259"
)

// fixedPorts returns the ports that cannot be configured in kubeadm: the ports of etcd, of the controller manager and of the
// scheduler.
func fixedPorts() []string { return []string{"2379", "2380", "2381", controllerPort, schedulerPort} }

// adaptManifests reads the manifests that kubeadm has written, and replaces ports and host paths in them. ports maps each
// old port to its new port.
func (c *Cluster) adaptManifests(ports map[string]string) error {
	dir := filepath.Join(c.Root, "etc", "kubernetes", "manifests")
	for _, name := range []string{Etcd, APIServer, ControllerManager, Scheduler} {
		text, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
		if err != nil {
			return err
		}
		c.Manifests[name+".yaml"] = adaptManifest(string(text), c.Root, ports)
	}
	return nil
}

// hostPathPattern matches the path of a hostPath volume in a manifest of kubeadm.
var hostPathPattern = regexp.MustCompile(`(?m)^( *(?:- )?hostPath:\n +path: )/`)

// portPattern matches numbers that may be ports.
var portPattern = regexp.MustCompile(`\b[0-9]{4,5}\b`)

// adaptManifest returns the manifest with new ports, and with its host paths moved below root. ports maps each old port to
// its new port.
func adaptManifest(manifest, root string, ports map[string]string) string {
	manifest = portPattern.ReplaceAllStringFunc(manifest, func(found string) string {
		if port, ok := ports[found]; ok {
			return port
		}
		return found
	})
	return hostPathPattern.ReplaceAllString(manifest, "${1}"+strings.ReplaceAll(root, "$", "$$")+"/")
}
