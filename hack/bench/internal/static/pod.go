// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/seed81659283/nodeagent/hack/bench/internal/cri"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespacePrefix starts the namespace of each pod of the harness.
const namespacePrefix = "nodeagent-bench-"

// graceSeconds is the grace period of the pods. They exit at SIGTERM, so that only an agent that does not send it reaches
// the grace period.
const graceSeconds = 5

// script is the command of a container: it uses no CPU, and exits at once on SIGTERM. A plain sleep as process 1 of its PID
// namespace ignores SIGTERM, and each teardown would take the grace period.
const script = "trap 'exit 0' TERM; sleep 1000000 & wait"

// pod is one pod of a measurement. Its manifest and its bare CRI calls are derived from it.
type pod struct {
	Namespace, Name, UID string
	Image, ImageID       string
	Labels, Env          map[string]string
	Limits               limits
	Volumes              []podVolume
}

// limits are the limits of each container of an agent's pod, in the syntax of a manifest; empty means none.
type limits struct{ CPU, Memory string }

// parseLimits reads CPU,MEMORY or none.
func parseLimits(text string) (limits, error) {
	if text == "none" {
		return limits{}, nil
	}
	cpu, memory, found := strings.Cut(text, ",")
	if !found {
		return limits{}, fmt.Errorf("%q is neither CPU,MEMORY nor none", text)
	}
	if !regexp.MustCompile(`^[1-9][0-9]*m?$`).MatchString(cpu) {
		return limits{}, fmt.Errorf("CPU limit %q must be a number of CPUs or of millicores, such as 100m", cpu)
	}
	if !regexp.MustCompile(`^[1-9][0-9]*[KMG]i$`).MatchString(memory) {
		return limits{}, fmt.Errorf("memory limit %q must be a number of Ki, Mi or Gi", memory)
	}
	return limits{CPU: cpu, Memory: memory}, nil
}

// newPods returns n pods of a namespace with different names, labels and environment, like those of a cluster.
func newPods(namespace, image, imageID string, n int, l limits) []pod {
	pods := make([]pod, n)
	for i := range pods {
		name := fmt.Sprintf("web-%03d", i)
		pods[i] = pod{
			Namespace: namespace,
			Name:      name,
			UID:       fmt.Sprintf("%s-%s", namespace, name),
			Image:     image,
			ImageID:   imageID,
			Limits:    l,
			Labels: map[string]string{
				"app":     fmt.Sprintf("shop-%d", i%7),
				"tier":    [...]string{"front", "back", "data"}[i%3],
				"version": fmt.Sprintf("v1.%d", i%5),
			},
			Env: map[string]string{
				"APP_NAME":  name,
				"APP_SHARD": fmt.Sprint(i),
				"APP_PEERS": fmt.Sprintf("shop-%d.internal:8080,shop-%d.internal:8080", (i+1)%7, (i+2)%7),
			},
		}
	}
	return pods
}

var manifestTemplate = template.Must(template.New("manifest").Parse(`apiVersion: v1
kind: Pod
metadata:
  name: {{printf "%q" .Pod.Name}}
  namespace: {{printf "%q" .Pod.Namespace}}
  labels:
{{- range $name, $value := .Pod.Labels}}
    {{$name}}: {{printf "%q" $value}}
{{- end}}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: {{.Grace}}
  dnsPolicy: Default
  containers:
  - name: main
    image: {{printf "%q" .Pod.Image}}
    imagePullPolicy: IfNotPresent
    command: ["/bin/sh", "-c"]
    args: [{{printf "%q" .Script}}]
    env:
{{- range $name, $value := .Pod.Env}}
    - name: {{$name}}
      value: {{printf "%q" $value}}
{{- end}}
    resources:
      requests: {cpu: 5m, memory: 8Mi}
{{- if .Pod.Limits.CPU}}
      limits: {cpu: {{.Pod.Limits.CPU}}, memory: {{.Pod.Limits.Memory}}}
{{- end}}
{{- if .Pod.Volumes}}
    volumeMounts:
{{- range .Pod.Volumes}}
    - {name: {{.Name}}, mountPath: /{{.Name}}}
{{- end}}
  volumes:
{{- range .Pod.Volumes}}
  - name: {{.Name}}
    {{.Source}}
{{- end}}
{{- end}}
`))

// manifest returns the manifest of the static pod.
func (p pod) manifest() ([]byte, error) {
	var text bytes.Buffer
	err := manifestTemplate.Execute(&text, map[string]any{"Pod": p, "Grace": graceSeconds, "Script": script})
	return text.Bytes(), err
}

// writeManifests writes one file per pod into dir.
func writeManifests(dir string, pods []pod) error {
	for _, p := range pods {
		text, err := p.manifest()
		if err != nil {
			return fmt.Errorf("write manifest of %s: %w", p.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, p.Name+".yaml"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sandboxConfig returns the configuration that the kubelet passes to RunPodSandbox for the pod. It contains no DNS settings:
// the runtime copies the host's resolv.conf, as the kubelet does for dnsPolicy Default.
func (p pod) sandboxConfig(logs string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		Hostname:     p.Name,
		LogDirectory: filepath.Join(logs, p.UID),
		Labels:       p.identity(p.Labels),
		Annotations:  map[string]string{"kubernetes.io/config.source": "file"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: podNamespaces(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
			Resources: p.resources(),
		},
	}
}

// containerConfig returns the configuration that the kubelet passes to CreateContainer for the container of the pod. dir
// contains the files to mount.
func (p pod) containerConfig(name, dir string, attempt uint32) *runtimeapi.ContainerConfig {
	env := make([]*runtimeapi.KeyValue, 0, len(p.Env))
	for key, value := range p.Env {
		env = append(env, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
	}
	mounts := []*runtimeapi.Mount{
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "hosts")},
		{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(dir, "termination-log")},
	}
	for _, v := range p.Volumes {
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: "/" + v.Name, HostPath: filepath.Join(dir, v.Name), Readonly: v.readOnly()})
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: p.ImageID, UserSpecifiedImage: p.Image},
		Command:  []string{"/bin/sh", "-c"},
		Args:     []string{script},
		Envs:     env,
		Mounts:   mounts,
		Labels:   p.identity(map[string]string{cri.LabelContainer: name}),
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     "5b1c0a3e",
			"io.kubernetes.container.restartCount":             fmt.Sprint(attempt),
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         fmt.Sprint(graceSeconds),
		},
		LogPath: fmt.Sprintf("%s_%d.log", name, attempt),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: p.resources(),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: podNamespaces(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
				MaskedPaths:      maskedPaths(),
				ReadonlyPaths:    readonlyPaths(),
			},
		},
	}
}

// identity adds the labels that identify the pod.
func (p pod) identity(labels map[string]string) map[string]string {
	all := map[string]string{cri.LabelPodName: p.Name, cri.LabelPodNamespace: p.Namespace, cri.LabelPodUID: p.UID}
	maps.Copy(all, labels)
	return all
}

// resources returns the requests of the manifest. Only the pods of agents have limits.
func (pod) resources() *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuShares: 5, OomScoreAdj: 999,
	}
}

// podNamespaces returns the namespaces of a pod: network and IPC per pod, and PID per container.
func podNamespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
}

// maskedPaths and readonlyPaths are the defaults of procMount (pkg/securitycontext/util.go). Each is a mount that the
// runtime creates: without them the floor would be lower than any agent can reach.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
