// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// ignored are the errors of kubeadm's preflight checks that the host causes: SystemVerification refuses cgroup v1.
const ignored = "--ignore-preflight-errors=SystemVerification"

// kubeadmImages is the registry of kubeadm's images. No test pulls from it.
const kubeadmImages = "registry.k8s.io/"

// initConfig is the configuration of kubeadm init. kube-proxy cannot change the size of the table of connections, which is that of the host. Client
// certificates of nodes expire after four minutes.
const initConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + controlplane.Version + `
networking: {podSubnet: 10.244.0.0/16}
controllerManager: {extraArgs: [{name: cluster-signing-duration, value: 4m}]}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0}
`

// podNetwork is a CNI configuration with the podCIDR of a node. The node routes all packets of its pods, so that they pass the rules of kube-proxy.
const podNetwork = `{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "ptp",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// workloads are a Deployment, a DaemonSet, and a StatefulSet with a claim of a CSI driver.
const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "mkdir /www; hostname | tee /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: every}
spec:
  selector: {matchLabels: {app: every}}
  template:
    metadata: {labels: {app: every}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "nodeagent.test/busybox:1", command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: loop.csi.example}
spec: {podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File, volumeLifecycleModes: [Persistent]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: loop}
provisioner: loop.csi.example
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: loop
  claimRef: {namespace: default, name: data-db-0}
  csi: {driver: loop.csi.example, volumeHandle: data, fsType: ext4}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "trap exit TERM; grep -o ' /data ext4' /proc/mounts; echo started >>/data/starts; while :; do sleep 0.2; done"]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: loop, resources: {requests: {storage: 16Mi}}}
`

// kubeadmCluster is a cluster of kubeadm: a control plane and a worker.
type kubeadmCluster struct {
	t               *testing.T
	control, worker *machine
	driver          string // program of the CSI driver
}

// newKubeadmCluster starts two machines with program as the kubelet, and makes a cluster of both with the commands of kubeadm's manual.
func newKubeadmCluster(t *testing.T, program, driver, bin string) *kubeadmCluster {
	c := &kubeadmCluster{t: t, control: newMachine(t, "n1", program, bin), worker: newMachine(t, "n2", program, bin), driver: driver}
	connect(t, [2]*machine{c.control, c.worker})
	for name, image := range controlplane.Images() {
		on := []*machine{c.control}
		switch name {
		case controlplane.Kubectl:
			continue
		case controlplane.Proxy, controlplane.CoreDNS:
			on = append(on, c.worker)
		}
		for _, m := range on {
			m.loadImage(name)
			m.run("ctr", "-n", "k8s.io", "images", "tag", image, strings.Replace(image, "nodeagent.test/", kubeadmImages, 1))
		}
	}
	for _, m := range []*machine{c.control, c.worker} {
		m.loadImage("busybox")
		m.loadImage("pause")
		m.run("ctr", "-n", "k8s.io", "images", "tag", lab.PauseImage, kubeadmImages+"pause:3.10.2")
		// A kubelet refuses cgroup v1 by default. The agent ignores the flag.
		m.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--fail-cgroupv1=false\n")
		m.run("systemctl", "start", "kubelet") // fails and is restarted until kubeadm has written the configuration
	}
	began := time.Now()
	c.control.write("/etc/kubeadm.yaml", initConfig)
	out := c.control.run("kubeadm", "init", "--config=/etc/kubeadm.yaml", ignored)
	t.Logf("kubeadm init took %v", time.Since(began).Round(time.Second))
	require.Contains(t, out, `[kubelet-finalize] Updating "/etc/kubernetes/kubelet.conf" to point to a rotatable kubelet client certificate and key`)

	c.join()
	return c
}

// join adds the worker to the cluster.
func (c *kubeadmCluster) join() {
	c.t.Helper()
	began := time.Now()
	command := c.control.run("kubeadm", "token", "create", "--print-join-command")
	require.Contains(c.t, c.worker.run(append(strings.Fields(command), ignored)...), "This node has joined the cluster")
	c.t.Logf("kubeadm join took %v", time.Since(began).Round(time.Second))
}

// kubectl runs kubectl on the control plane, and returns its output.
func (c *kubeadmCluster) kubectl(args ...string) string {
	c.t.Helper()
	return c.control.run(append([]string{"kubectl"}, args...)...)
}

// await waits until kubectl prints want.
func (c *kubeadmCluster) await(want string, args ...string) {
	c.t.Helper()
	exetest.Eventually(c.t, time.Minute, func() error {
		got, err := c.control.try(append([]string{"kubectl"}, args...)...)
		if err == nil && got != want {
			err = fmt.Errorf("kubectl %s prints %q, want %q", strings.Join(args, " "), got, want)
		}
		return err
	})
}

// addPodNetwork writes the CNI configuration of both nodes, as a network plugin does. Both nodes become ready.
func (c *kubeadmCluster) addPodNetwork() {
	c.t.Helper()
	c.await("False False", "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	var subnets [2]string
	for i, name := range []string{"n1", "n2"} {
		exetest.Eventually(c.t, time.Minute, func() error {
			if subnets[i] = c.kubectl("get", "node", name, "-o", "jsonpath={.spec.podCIDR}"); subnets[i] == "" {
				return fmt.Errorf("node %s has no podCIDR", name)
			}
			return nil
		})
	}
	for i, m := range []*machine{c.control, c.worker} {
		m.run("ip", "route", "add", subnets[1-i], "via", address(1-i))
		m.write("/etc/cni/net.d/10-pods.conflist", fmt.Sprintf(podNetwork, subnets[i]))
	}
	c.kubectl("wait", "--for=condition=ready", "node", "--all", "--timeout=120s")
}

// runWorkloads starts the workloads, and uses them across the nodes.
func (c *kubeadmCluster) runWorkloads() {
	c.t.Helper()
	c.worker.write("/usr/local/bin/csidriver", c.driver)
	c.worker.script("chmod +x /usr/local/bin/csidriver; mkdir -p /run/loop/volumes; truncate -s 16M /run/loop/volumes/data.img; " +
		"setsid csidriver -endpoint /run/loop.sock -data /run/loop -registry /var/lib/kubelet/plugins_registry >/run/csidriver.log 2>&1 </dev/null &")
	c.control.write("/tmp/workloads.yaml", workloads)
	c.kubectl("apply", "-f", "/tmp/workloads.yaml")
	for _, workload := range []string{"deployment/web", "daemonset/every", "statefulset/db"} {
		c.kubectl("rollout", "status", workload, "--timeout=180s")
	}
	for _, addon := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		c.kubectl("-n", "kube-system", "rollout", "status", addon, "--timeout=180s")
	}
	require.Equal(c.t, "/data ext4", c.kubectl("logs", "db-0"))
	require.Equal(c.t, "started", c.kubectl("exec", "db-0", "--", "cat", "/data/starts"))
	web := strings.Fields(c.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name} {.items[0].status.podIP}"))
	require.Equal(c.t, web[0], c.kubectl("logs", web[0]))
	every := c.kubectl("get", "pods", "-l", "app=every", "--field-selector=spec.nodeName=n1", "-o", "jsonpath={.items[0].metadata.name}")
	require.Equal(c.t, web[0], c.kubectl("exec", every, "--", "wget", "-q", "-O", "-", "http://"+web[1]+":8080/"), "from a pod of the other node")
	c.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080")
	address := c.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	exetest.Eventually(c.t, time.Minute, func() error { // kube-proxy and CoreDNS follow the new service
		found, err := c.control.try("kubectl", "exec", every, "--", "nslookup", "web.default.svc.cluster.local")
		if err == nil && !strings.Contains(found, "Address: "+address) && !strings.Contains(found, "Address 1: "+address) {
			err = fmt.Errorf("CoreDNS answers %q, want %s", found, address)
		}
		if err != nil {
			return err
		}
		name, err := c.control.try("kubectl", "exec", every, "--", "timeout", "5", "wget", "-q", "-O", "-", "http://"+address+"/") // wget -T of Debian's busybox crashes
		if err == nil && !strings.HasPrefix(name, "web-") {
			err = fmt.Errorf("the service answers %q", name)
		}
		return err
	})
}

// upgrade changes the configuration of all kubelets and of the scheduler in the maps of kubeadm, and applies both with kubeadm upgrade node. It
// returns the files that kubeadm has left.
func (c *kubeadmCluster) upgrade() map[string]string {
	c.t.Helper()
	files := map[string]string{}
	c.control.script(`kubectl -n kube-system get configmap kubelet-config -o yaml | sed 's/^    syncFrequency/    maxPods: 55\n&/' | kubectl replace -f -
		kubectl -n kube-system get configmap kubeadm-config -o yaml | sed 's/^    scheduler: {}/    scheduler: {extraArgs: [{name: v, value: "1"}]}/' | kubectl replace -f -`)
	for _, m := range []*machine{c.control, c.worker} {
		m.run("kubeadm", "upgrade", "node", ignored)
		m.run("systemctl", "restart", "kubelet")
		files["files after the upgrade of "+m.name] = normalize(m.script("find /etc/kubernetes | grep -v /member; cat /var/lib/kubelet/*.yaml /var/lib/kubelet/*.env"))
		c.await("55", "get", "node", m.name, "-o", "jsonpath={.status.capacity.pods}")
	}
	c.kubectl("wait", "--for=condition=ready", "node", "--all", "--timeout=120s")
	require.Contains(c.t, c.kubectl("-n", "kube-system", "get", "pod", "kube-scheduler-n1", "-o", "jsonpath={.spec.containers[0].command}"), "--v=1")
	return files
}

// renewCertificates renews the certificates of the control plane, and restarts its static pods: their manifests are moved away for a while.
func (c *kubeadmCluster) renewCertificates() {
	c.t.Helper()
	before := c.control.run("cat", "/etc/kubernetes/pki/apiserver.crt")
	c.control.run("kubeadm", "certs", "renew", "all")
	c.control.script("mv /etc/kubernetes/manifests /etc/kubernetes/moved; mkdir /etc/kubernetes/manifests")
	exetest.Eventually(c.t, time.Minute, func() error {
		if out, err := c.control.try("pgrep", "--list-name", "etcd|kube-(api|con|sch)"); err == nil {
			return fmt.Errorf("static pods run: %s", out)
		}
		return nil
	})
	c.control.script("mv /etc/kubernetes/moved/* /etc/kubernetes/manifests; rmdir /etc/kubernetes/moved")
	c.await("ok", "get", "--raw", "/readyz")
	require.NotEqual(c.t, before, c.control.run("cat", "/etc/kubernetes/pki/apiserver.crt"))
	c.kubectl("wait", "--for=condition=ready", "node", "--all", "--timeout=120s")
}

// awaitRotation waits until the worker has rotated its client certificate. All requests of both nodes are approved. Until a year has passed, the
// control plane may use the certificate that kubeadm has signed: kubeadm restarts the kubelet before the first request is completed.
func (c *kubeadmCluster) awaitRotation() {
	c.t.Helper()
	exetest.Eventually(c.t, 4*time.Minute, func() error { // after 70 to 90 % of four minutes since the join
		if files := c.worker.script("ls /var/lib/kubelet/pki/kubelet-client-2*.pem"); strings.Count(files, ".pem") < 2 {
			return fmt.Errorf("the only certificate is %s", files)
		}
		return nil
	})
	for _, m := range []*machine{c.control, c.worker} {
		require.Contains(c.t, m.run("cat", "/etc/kubernetes/kubelet.conf"), "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem")
	}
	for _, user := range []string{"system:bootstrap:", "system:node:n2"} {
		requests := c.kubectl("get", "csr", "-o", `jsonpath={range .items[*]}{.spec.username} {.status.conditions[*].type}{"\n"}{end}`)
		require.Regexp(c.t, regexp.QuoteMeta(user)+`\S* Approved`, requests)
		require.NotContains(c.t, requests, "Denied")
	}
	c.kubectl("wait", "--for=condition=ready", "node", "--all", "--timeout=60s")
}

// reset removes the worker, which then joins again, and both nodes. It returns the files, cgroups, mounts, containers and network devices that are
// left.
func (c *kubeadmCluster) reset() map[string]string {
	c.t.Helper()
	c.kubectl("drain", "n2", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
	exetest.Eventually(c.t, time.Minute, func() error { // a kubelet removes the logs of removed pods once a minute
		logs, err := c.worker.try("ls", "/var/log/pods")
		if names := strings.Fields(logs); err == nil && (len(names) != 2 || !strings.HasPrefix(names[0], "default_every-") || !strings.HasPrefix(names[1], "kube-system_kube-proxy-")) {
			err = fmt.Errorf("the pods of the worker have the logs %q", names)
		}
		return err
	})
	c.kubectl("delete", "node", "n2")
	c.worker.run("kubeadm", "reset", "--force")
	c.join()
	c.await("node/n2", "get", "node", "n2", "-o", "name") // kubeadm does not wait for the Node
	c.kubectl("wait", "--for=condition=ready", "node", "n2", "--timeout=120s")
	for _, workload := range []string{"deployment/web", "daemonset/every"} {
		c.kubectl("rollout", "status", workload, "--timeout=120s")
	}
	c.kubectl("delete", "node", "n2")
	c.worker.run("kubeadm", "reset", "--force")
	c.control.run("kubeadm", "reset", "--force")
	left := map[string]string{}
	for _, m := range []*machine{c.control, c.worker} {
		left["files of "+m.name] = normalize(m.script("cd /mnt; find . -path ./root -prune -o -path './var/log/*' -prune -o -print; find /run/* | grep -v -e containerd -e /run/loop -e systemctl || true"))
		left["logs of "+m.name] = normalize(m.script("find /var/log/pods /var/log/containers -type d || true"))
		// A kubelet creates no cgroups in the hierarchy of the controller devices. The runtime does.
		left["cgroups of "+m.name] = normalize(m.script("cd /sys/fs/cgroup; find . -mindepth 2 -type d | grep -v ./devices/"))
		left["mounts of "+m.name] = normalize(m.script("cut -d ' ' -f 2 /proc/mounts | grep -v -e ^/dev -e ^/sys || true"))
		left["containers of "+m.name] = normalize(m.script("ctr -n k8s.io containers list -q 2>/dev/null; ctr -n k8s.io tasks list -q 2>/dev/null; ps -eo comm | grep -e shim -e kube || true"))
		left["network of "+m.name] = normalize(m.script("ip -o link | cut -d : -f 2 | cut -d @ -f 1; ip route"))
	}
	return left
}

// variable matches the parts of names that differ between two clusters: IDs, random suffixes, times.
var variable = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|veth[0-9a-f]{8}|(?:every|kube-proxy)-[0-9a-z]{5}|(?:web|coredns)-[0-9a-z]+-[0-9a-z]{5}|\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d|manifests\d+`)

// normalize sorts lines, and replaces the parts that differ between two clusters.
func normalize(text string) string {
	lines := strings.Split(variable.ReplaceAllString(text, "*"), "\n")
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

// kubeadm alone makes a cluster of two agents, upgrades it and removes it, with the commands of its manual. The Deployment, the DaemonSet and the
// StatefulSet with a CSI volume run, kube-proxy and CoreDNS serve a Service, client certificates rotate, and the files that kubeadm leaves are those of a
// cluster of kubelets.
func TestClusterKubeadm(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes minutes and needs programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("the machines of this test need cgroup v1")
	}
	bin, err := filepath.EvalSymlinks(controlplane.RequirePrograms(t, "kubeadm", "kubelet", "containerd", controlplane.Kubectl))
	require.NoError(t, err)
	ours, driver := filepath.Join(t.TempDir(), "kubelet"), filepath.Join(t.TempDir(), "csidriver")
	for program, source := range map[string]string{ours: ".", driver: "../../hack/csidriver"} {
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, source).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	text, err := os.ReadFile(driver)
	require.NoError(t, err)
	left := map[string]map[string]string{}
	for _, run := range []struct{ name, program string }{{"agent", ours}, {"kubelet", filepath.Join(bin, "kubelet")}} {
		t.Run(run.name, func(t *testing.T) {
			c := newKubeadmCluster(t, run.program, string(text), bin)
			c.addPodNetwork()
			c.runWorkloads()
			files := c.upgrade()
			c.renewCertificates()
			if run.name == "agent" {
				c.awaitRotation()
			}
			require.Equal(t, "started", c.kubectl("exec", "db-0", "--", "cat", "/data/starts"), "no container was restarted")
			maps.Copy(files, c.reset())
			left[run.name] = files
		})
	}
	require.Len(t, left, 2)
	for name, want := range left["kubelet"] {
		assert.Equal(t, want, left["agent"][name], name)
	}
}
