// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// environment returns the environment of the first container of p.
func environment(t *testing.T, p *corev1.Pod, s podenv.Sources) []cri.EnvVar {
	t.Helper()
	e, err := podenv.New(p, &p.Spec.Containers[0], s)
	require.NoError(t, err)
	return e.List()
}

// newReferences returns References with a config map "app", a secret "login" and an environment file.
func newReferences() podenv.References {
	return podenv.References{
		ConfigMaps: map[string]*corev1.ConfigMap{"app": {Data: map[string]string{"level": "info", "color": "red", "$x": "$(level)"}}},
		Secrets:    map[string]*corev1.Secret{"login": {Data: map[string][]byte{"user": []byte("root"), "level": []byte("secret")}}},
		EnvFiles:   map[podenv.EnvFile][]byte{{Volume: "v", Path: "vars"}: []byte("A='one'\nEMPTY=''\n")},
	}
}

func addrs(s ...string) []netip.Addr {
	var list []netip.Addr
	for _, a := range s {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

func TestEnvironment(t *testing.T) {
	p := podtest.Pod(t, "{nodeName: n1, serviceAccountName: sa}", `{resources: {limits: {cpu: 1500m}, requests: {memory: 1Mi}}, env: [
		{name: Z, value: first}, {name: A, value: $(Z) $(SVC) $(LATER)}, {name: LATER, value: x}, {name: Z, value: last},
		{name: EMPTY}, {name: SVC2, value: own},
		{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}},
		{name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app.io/x']"}}},
		{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
		{name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}},
		{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
		{name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}},
		{name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}},
		{name: MILLI, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}},
		{name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}},
		{name: REQ, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Gi, containerName: c}}}]}`)
	p.Labels = map[string]string{"app.io/x": "label"}
	s := podenv.Sources{
		HostIPs:     addrs("10.0.0.1", "fd00::1"),
		Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1025Ki")},
		PodIPs:      []string{"fd00::2", "10.0.0.2", "10.0.0.3"},
		Node:        []cri.EnvVar{{Name: "SVC", Value: "s"}, {Name: "SVC2", Value: "s2"}},
	}
	assert.Equal(t, []cri.EnvVar{
		{Name: "Z", Value: "last"},
		{Name: "A", Value: "first s $(LATER)"},
		{Name: "LATER", Value: "x"},
		{Name: "EMPTY", Value: ""},
		{Name: "SVC2", Value: "own"},
		{Name: "NAME", Value: "web"},
		{Name: "LABEL", Value: "label"},
		{Name: "NODE", Value: "n1"},
		{Name: "HOST", Value: "10.0.0.1"},
		{Name: "IP", Value: "10.0.0.2"},
		{Name: "IPS", Value: "10.0.0.2,fd00::2"},
		{Name: "CPU", Value: "2"},
		{Name: "MILLI", Value: "1500"},
		{Name: "MEM", Value: "2"},
		{Name: "REQ", Value: "1"},
		{Name: "SVC", Value: "s"},
	}, environment(t, p, s))

	p = podtest.Pod(t, "hostNetwork: true", "env: [{name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]")
	s.PodIPs, s.Node = nil, nil
	assert.Equal(t, "10.0.0.1,fd00::1", environment(t, p, s)[0].Value)

	p = podtest.Pod(t, "", "env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]")
	six := podenv.Sources{HostIPs: addrs("fd00::1", "10.0.0.1"), PodIPs: []string{"10.0.0.2", "fd00::2"}}
	assert.Equal(t, "fd00::2", environment(t, p, six)[0].Value,
		"the IP family of the first node address comes first")
}

func TestVariablesFromConfigMapsSecretsAndFiles(t *testing.T) {
	for name, c := range map[string]struct {
		container string
		want      []cri.EnvVar
	}{
		"whole objects, sorted by key": {
			`envFrom: [{configMapRef: {name: app}}]`,
			[]cri.EnvVar{{Name: "$x", Value: "$(level)"}, {Name: "color", Value: "red"}, {Name: "level", Value: "info"}},
		},
		"key in two objects, the later one is used": {
			`envFrom: [{configMapRef: {name: app}}, {secretRef: {name: login}}]`,
			[]cri.EnvVar{{Name: "$x", Value: "$(level)"}, {Name: "color", Value: "red"}, {Name: "level", Value: "secret"}, {Name: "user", Value: "root"}},
		},
		"prefix": {
			`envFrom: [{prefix: L_, secretRef: {name: login}}]`,
			[]cri.EnvVar{{Name: "L_level", Value: "secret"}, {Name: "L_user", Value: "root"}},
		},
		"variables of the container override and reference object keys": {
			`{envFrom: [{secretRef: {name: login}}], env: [{name: A, value: $(user)}, {name: level, value: own}]}`,
			[]cri.EnvVar{{Name: "level", Value: "own"}, {Name: "user", Value: "root"}, {Name: "A", Value: "root"}},
		},
		"keys": {
			`env: [{name: A, valueFrom: {configMapKeyRef: {name: app, key: $x}}}, {name: B, valueFrom: {secretKeyRef: {name: login, key: user}}},
				{name: C, value: $(A)}]`,
			[]cri.EnvVar{{Name: "A", Value: "$(level)"}, {Name: "B", Value: "root"}, {Name: "C", Value: "$(level)"}},
		},
		"file": {
			`env: [{name: X, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: A}}}]`,
			[]cri.EnvVar{{Name: "X", Value: "one"}},
		},
		"missing optional objects and keys": {
			`{envFrom: [{configMapRef: {name: x, optional: true}}, {secretRef: {name: x, optional: true}}], env: [
				{name: A, valueFrom: {configMapKeyRef: {name: x, key: k, optional: true}}},
				{name: B, valueFrom: {configMapKeyRef: {name: app, key: k, optional: true}}},
				{name: C, valueFrom: {secretKeyRef: {name: x, key: k, optional: true}}},
				{name: D, valueFrom: {secretKeyRef: {name: login, key: k, optional: true}}},
				{name: E, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: EMPTY, optional: true}}},
				{name: F, value: "$(A)"}]}`,
			[]cri.EnvVar{{Name: "F", Value: "$(A)"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := podtest.Pod(t, "volumes: [{name: v}]", c.container)
			got := environment(t, p, podenv.Sources{References: newReferences(), Volumes: map[string]string{"v": "/v"}})
			assert.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

func TestMissingObjectsFailUnlessOptional(t *testing.T) {
	const env = "spec.containers[0].env[0].valueFrom."
	for container, want := range map[string]string{
		"envFrom: [{configMapRef: {name: x}}]":                                                        `spec.containers[0].envFrom[0].configMapRef.name: Not found: "x"`,
		"envFrom: [{secretRef: {name: x, optional: false}}]":                                          `spec.containers[0].envFrom[0].secretRef.name: Not found: "x"`,
		"env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: k}}}]":                           env + `configMapKeyRef.name: Not found: "x"`,
		"env: [{name: A, valueFrom: {configMapKeyRef: {name: app, key: k}}}]":                         env + `configMapKeyRef.key: Not found: "k"`,
		"env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k}}}]":                              env + `secretKeyRef.name: Not found: "x"`,
		"env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: k}}}]":                          env + `secretKeyRef.key: Not found: "k"`,
		"env: [{name: A, valueFrom: {fileKeyRef: {volumeName: x, path: vars, key: A}}}]":              env + `fileKeyRef.volumeName: Not found: "x"`,
		"env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: x, key: A, optional: true}}}]": env + `fileKeyRef.path: Not found: "x"`,
		"env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: EMPTY}}}]":          env + `fileKeyRef.key: Not found: "EMPTY"`,
		"env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: bad, key: A}}}]":               env + `fileKeyRef.path: Invalid value: "bad": line 1: no equals sign`,
	} {
		p, s := podtest.Pod(t, "volumes: [{name: v}]", container), podenv.Sources{References: newReferences(), Volumes: map[string]string{"v": "/v"}}
		s.References.EnvFiles[podenv.EnvFile{Volume: "v", Path: "bad"}] = []byte("A")
		_, err := podenv.New(p, &p.Spec.Containers[0], s)
		assert.EqualError(t, err, want)
	}
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	s.Namespace, s.Name = namespace, name
	return s
}

func TestServiceVariables(t *testing.T) {
	services := []*corev1.Service{
		service("default", "kubernetes", "10.0.0.1", corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}),
		service("default", "elsewhere", "10.0.0.2", corev1.ServicePort{Port: 1}),
		service("shop", "my-db", "fd00::3", corev1.ServicePort{Port: 5432}, corev1.ServicePort{Name: "repl-in", Port: 53, Protocol: corev1.ProtocolUDP}),
		service("shop", "headless", "None", corev1.ServicePort{Port: 1}),
		service("shop", "external", ""),
	}
	kubernetes := []cri.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.1"},
		{Name: "KUBERNETES_SERVICE_PORT", Value: "443"},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: "443"},
		{Name: "KUBERNETES_PORT", Value: "tcp://10.0.0.1:443"},
		{Name: "KUBERNETES_PORT_443_TCP", Value: "tcp://10.0.0.1:443"},
		{Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_443_TCP_PORT", Value: "443"},
		{Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: "10.0.0.1"},
	}
	p := podtest.Pod(t, "", "env: [{name: URL, value: $(MY_DB_PORT)}]")
	p.Namespace = "shop"
	got := environment(t, p, podenv.Sources{References: podenv.References{Services: services}})
	want := append([]cri.EnvVar{{Name: "URL", Value: "tcp://[fd00::3]:5432"}}, kubernetes...)
	want = append(want, []cri.EnvVar{
		{Name: "MY_DB_SERVICE_HOST", Value: "fd00::3"},
		{Name: "MY_DB_SERVICE_PORT", Value: "5432"},
		{Name: "MY_DB_SERVICE_PORT_REPL_IN", Value: "53"},
		{Name: "MY_DB_PORT", Value: "tcp://[fd00::3]:5432"},
		{Name: "MY_DB_PORT_5432_TCP", Value: "tcp://[fd00::3]:5432"},
		{Name: "MY_DB_PORT_5432_TCP_PROTO", Value: "tcp"},
		{Name: "MY_DB_PORT_5432_TCP_PORT", Value: "5432"},
		{Name: "MY_DB_PORT_5432_TCP_ADDR", Value: "fd00::3"},
		{Name: "MY_DB_PORT_53_UDP", Value: "udp://[fd00::3]:53"},
		{Name: "MY_DB_PORT_53_UDP_PROTO", Value: "udp"},
		{Name: "MY_DB_PORT_53_UDP_PORT", Value: "53"},
		{Name: "MY_DB_PORT_53_UDP_ADDR", Value: "fd00::3"},
	}...)
	assert.Empty(t, cmp.Diff(want, got))

	p = podtest.Pod(t, "enableServiceLinks: false")
	p.Namespace = "shop"
	got = environment(t, p, podenv.Sources{References: podenv.References{Services: services}})
	assert.Empty(t, cmp.Diff(kubernetes, got), "the variables of the API server service are always set")

	// A service named kubernetes in the namespace of the pod overrides the API server service, in any list order.
	own := service("shop", "kubernetes", "10.0.0.9", corev1.ServicePort{Port: 6443})
	for _, services := range [][]*corev1.Service{{own, services[0]}, {services[0], own}} {
		p = podtest.Pod(t)
		p.Namespace = "shop"
		got = environment(t, p, podenv.Sources{References: podenv.References{Services: services}})
		assert.Equal(t, cri.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "10.0.0.9"}, got[0])
	}
}

// A missing limit defaults to the allocatable resources of the node, except in a reference to an init container by name.
func TestResourceFieldOfNamedInitContainerHasNoDefault(t *testing.T) {
	p := podtest.Pod(t, `{initContainers: [{name: i, image: i, resources: {limits: {cpu: 3}}, env: [
		{name: OWN, valueFrom: {resourceFieldRef: {resource: limits.memory}}},
		{name: NAMED, valueFrom: {resourceFieldRef: {containerName: i, resource: limits.memory}}}]}],
		containers: [{name: c, image: i, env: [
		{name: CPU, valueFrom: {resourceFieldRef: {containerName: i, resource: limits.cpu}}},
		{name: MEMORY, valueFrom: {resourceFieldRef: {containerName: c, resource: limits.memory}}}]}]}`)
	require.Empty(t, podapi.Validate(p))
	s := podenv.Sources{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7")}}
	got, err := podenv.New(p, &p.Spec.InitContainers[0], s)
	require.NoError(t, err)
	assert.Equal(t, []cri.EnvVar{{Name: "OWN", Value: "7"}, {Name: "NAMED", Value: "0"}}, got.List())
	assert.Equal(t, []cri.EnvVar{{Name: "CPU", Value: "3"}, {Name: "MEMORY", Value: "7"}}, environment(t, p, s))
}
