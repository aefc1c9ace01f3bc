// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// Pods get the objects that they refer to, and running pods see edits of these objects.
func TestClusterObjects(t *testing.T) {
	m := newMember(t, map[string]any{"serverTLSBootstrap": true, "logLevel": "DEBUG"})
	for _, part := range []struct {
		name string
		test func(*testing.T, *member)
	}{
		{"runtime classes", runtimeClasses},
		{"variables of services", serviceVariables},
		{"edits of config maps and secrets", editedObjects},
		{"certificate of a pod", podCertificate},
		{"secrets are not leaked", secretsNotLeaked},
		{"serving certificate of the agent", servingCertificate}, // for the address of a bridge that exists since the first pod
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, m.forTest(t)) })
	}
}

func runtimeClasses(t *testing.T, m *member) {
	m.apply(`
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: runc
overhead: {podFixed: {cpu: 20m, memory: 16Mi}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: exotic}
handler: nobody-has-it
`)
	pod := func(name, class string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  runtimeClassName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sleep, "1000000"]}]
`, name, class)
	}
	exetest.Eventually(t, timeout, func() error { // the API server looks up the class in a cache
		_, err := m.try(pod("classy", "heavy")+"---"+pod("odd", "exotic"), "apply", "-f", "-")
		return err
	})
	m.do("wait", "--for=condition=ready", "pod/classy", "--timeout=60s")
	overhead := m.pod("classy").Spec.Overhead
	require.Equal(t, "16Mi", overhead.Memory().String(), "the API server adds the overhead of the class")
	pods, err := m.pods()
	require.NoError(t, err)
	require.Equal(t, "runc", pods["classy"].Sandboxes[0].RuntimeHandler)
	exetest.Eventually(t, timeout, func() error { return m.checkEvent("odd", "FailedCreatePodSandBox", `nobody-has-it`) })
	m.do("delete", "pod", "classy", "odd", "--timeout=20s")
}

// checkEvent returns an error unless a pod has an event with reason and with words in its message.
func (m *member) checkEvent(pod, reason, words string) error {
	out, err := m.try("", "get", "events", "--field-selector", "involvedObject.name="+pod, "-o",
		`jsonpath={range .items[*]}{.reason}{": "}{.message}{"\n"}{end}`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if got, message, _ := strings.Cut(line, ": "); got == reason && strings.Contains(message, words) {
			return nil
		}
	}
	return fmt.Errorf("no event %s with %q about pod %s:\n%s", reason, words, pod, out)
}

func serviceVariables(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: Service
metadata: {name: data-base}
spec: {selector: {app: none}, ports: [{name: sql, port: 5432}]}
`)
	address := m.do("get", "service", "data-base", "-o", "jsonpath={.spec.clusterIP}")
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  restartPolicy: OnFailure
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'test -n "$DATA_BASE_SERVICE_HOST" && echo -n $DATA_BASE_SERVICE_HOST $DATA_BASE_SERVICE_PORT_SQL $KUBERNETES_SERVICE_PORT $URL > /dev/termination-log']
    env: [{name: URL, value: "sql://$(DATA_BASE_SERVICE_HOST)"}]
---
apiVersion: v1
kind: Pod
metadata: {name: never-asks}
spec:
  restartPolicy: Never
  enableServiceLinks: false
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'echo -n "$DATA_BASE_SERVICE_HOST" $KUBERNETES_SERVICE_PORT > /dev/termination-log']
`)
	for name, want := range map[string]string{
		"asks":       fmt.Sprintf("%s 5432 443 sql://%s", address, address),
		"never-asks": "443",
	} {
		m.eventually(timeout, "get", "pod", name, "-o", "jsonpath={.status.phase}")("Succeeded")
		require.Equal(t, want, strings.TrimSpace(m.pod(name).Status.ContainerStatuses[0].State.Terminated.Message))
	}
	m.do("delete", "pod/asks", "pod/never-asks", "service/data-base", "--timeout=20s")
}

func editedObjects(t *testing.T, m *member) {
	m.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: first}
---
apiVersion: v1
kind: Pod
metadata: {name: reads}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'trap exit TERM; while :; do
      now="$(cat /c/color) $(cat /s/word) $(cat /both/color) $(cat /both/word) $(cat /one)"; test "$now" = "$last" || echo $now; last="$now"; sleep 0.1; done']
    volumeMounts:
    - {name: c, mountPath: /c}
    - {name: s, mountPath: /s}
    - {name: both, mountPath: /both}
    - {name: c, mountPath: /one, subPath: color}
  volumes:
  - {name: c, configMap: {name: settings}}
  - {name: s, secret: {secretName: password}}
  - {name: both, projected: {sources: [{configMap: {name: settings}}, {secret: {name: password}}]}}
`)
	m.awaitLog("reads", "main", "red first red first red")
	before, _ := m.containers("reads")
	began := time.Now()
	m.do("patch", "configmap", "settings", "-p", `{"data":{"color":"blue"}}`)
	m.do("patch", "secret", "password", "-p", `{"stringData":{"word":"second"}}`)
	m.awaitLog("reads", "main", "blue second blue second red") // a subPath mount is not updated, as in the kubelet
	t.Logf("the container reads both edits %v after the first one", time.Since(began).Round(time.Millisecond))
	after, _ := m.containers("reads")
	require.Equal(t, before, after)
	m.do("delete", "pod/reads", "configmap/settings", "secret/password", "--timeout=20s")
}

// A secret or a token is in no log line, event, status or file of the agent, except the files that the pod reads. This holds
// also if the pod cannot start.
func secretsNotLeaked(t *testing.T, m *member) {
	const word, encoded = "correct-horse-battery", "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"
	m.apply(`
apiVersion: v1
kind: Secret
metadata: {name: deep}
stringData: {word: ` + word + `, key-1: ` + word + `}
---
apiVersion: v1
kind: Pod
metadata: {name: keeps}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'test "$WORD" = "$(cat /s/word)" && echo same; trap exit TERM; while :; do sleep 0.2; done']
    args: ["$(WORD)"]
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: deep, key: word}}}]
    envFrom: [{secretRef: {name: deep}}]
    volumeMounts: [{name: s, mountPath: /s}]
    lifecycle: {postStart: {exec: {command: [sh, -c, "cat /s/word; cat /var/run/secrets/kubernetes.io/serviceaccount/token"]}}}
    readinessProbe: {exec: {command: [test, -s, /s/word]}, periodSeconds: 1}
  volumes: [{name: s, secret: {secretName: deep}}]
---
apiVersion: v1
kind: Pod
metadata: {name: lacks-a-key}
spec:
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: deep, key: none}}}, {name: OTHER, valueFrom: {secretKeyRef: {name: deep, key: word}}}]

`)
	m.awaitLog("keeps", "main", "same")
	m.do("wait", "--for=condition=ready", "pod/keeps", "--timeout=60s")
	exetest.Eventually(t, timeout, func() error { return m.checkEvent("lacks-a-key", "Failed", `Not found: "none"`) })
	token := m.readToken("keeps")
	exetest.Eventually(t, timeout, func() error {
		stored, err := os.ReadFile(filepath.Join(m.state, "pods.store"))
		if err == nil && !strings.Contains(string(stored), `"lacks-a-key"`) {
			err = errors.New("the pods are not stored yet")
		}
		return err
	})

	for _, hidden := range []string{word, encoded, token} {
		for place, text := range map[string]string{
			"log": m.agent.Output(), "events": m.do("get", "events", "-o", "json"), "statuses": m.do("get", "pods", "-o", "json"),
		} {
			require.NotContains(t, text, hidden, place)
		}
		require.NoError(t, filepath.WalkDir(m.state, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return skipMissing(err)
			case d.IsDir() && d.Name() == "volumes": // files that the pod reads, in memory
				return fs.SkipDir
			}
			if d.Type().IsRegular() {
				text, err := os.ReadFile(path)
				require.NoError(t, skipMissing(err))
				require.NotContains(t, string(text), hidden, path)
			}
			return nil
		}))
	}
	m.do("delete", "pod/keeps", "pod/lacks-a-key", "secret/deep", "--timeout=25s", "--grace-period=1")
}

func skipMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readToken returns the service account token of a pod.
func (m *member) readToken(pod string) string {
	m.t.Helper()
	found, err := filepath.Glob(filepath.Join(m.state, "pods", string(m.pod(pod).UID), "volumes", "kubernetes.io~projected", "*", "token"))
	require.NoError(m.t, err)
	require.Len(m.t, found, 1)
	token, err := os.ReadFile(found[0])
	require.NoError(m.t, err)
	return string(token)
}

const pathRequests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"

// A pod has a key, a certificate for it, and the CA certificate of the signer. The test is the signer.
func podCertificate(t *testing.T, m *member) {
	signer := &volumetest.Signer{Lifetime: time.Hour}
	ca, err := signer.TrustBundle("example.com:x:ca", "example.com/x")
	require.NoError(t, err)
	m.sendRequest(http.MethodPost, "/apis/certificates.k8s.io/v1/clustertrustbundles", trustBundle(ca.Name, ca.PEM))
	m.apply(`
apiVersion: v1
kind: Pod
metadata: {name: certified}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, 'cat /v/bundle; trap exit TERM; while :; do grep -c BEGIN /v/ca; sleep 0.2; done']
    volumeMounts: [{name: v, mountPath: /v}]
  volumes:
  - name: v
    projected:
      sources:
      - podCertificate: {signerName: example.com/x, keyType: ECDSAP256, credentialBundlePath: bundle}
      - clusterTrustBundle: {signerName: example.com/x, labelSelector: {}, path: ca}
`)
	m.issuePodCertificate(signer)
	m.do("wait", "--for=condition=ready", "pod/certified", "--timeout=60s")
	m.awaitLog("certified", "main", "1")
	bundle := []byte(m.log("certified", "main"))
	pair, err := tls.X509KeyPair(bundle, bundle)
	require.NoError(t, err, "the key matches the certificate")
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(ca.PEM)))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)

	other, err := (&volumetest.Signer{}).TrustBundle("example.com:x:other", "example.com/x")
	require.NoError(t, err)
	m.sendRequest(http.MethodPost, "/apis/certificates.k8s.io/v1/clustertrustbundles", trustBundle(other.Name, other.PEM))
	m.awaitLog("certified", "main", "2") // at once, because the agent watches trust bundles
	m.do("delete", "pod/certified", "clustertrustbundle/"+ca.Name, "clustertrustbundle/"+other.Name, "--timeout=20s")
}

func trustBundle(name, text string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "ClusterTrustBundle"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/x", TrustBundle: text},
	}
}

// sendRequest sends a request, which must succeed, and ignores the response.
func (m *member) sendRequest(method, path string, in any) {
	m.t.Helper()
	require.NoError(m.t, m.Admin().Do(within(m.t, timeout), method, path, in, nil))
}

// issuePodCertificate issues the certificate that a pod has requested.
func (m *member) issuePodCertificate(signer *volumetest.Signer) {
	m.t.Helper()
	var list certificatesv1.PodCertificateRequestList
	exetest.Eventually(m.t, timeout, func() error {
		err := m.Admin().Do(within(m.t, timeout), http.MethodGet, pathRequests, nil, &list)
		if err == nil && len(list.Items) == 0 {
			err = errors.New("no certificate is requested")
		}
		return err
	})
	o := list.Items[0]
	issued, err := signer.Issue(m.t.Context(), volume.CertificateRequest{Namespace: o.Namespace, Pod: o.Spec.PodName, StubPKCS10Request: o.Spec.StubPKCS10Request})
	require.NoError(m.t, err)
	block, _ := pem.Decode(issued.Chain)
	leaf, err := x509.ParseCertificate(block.Bytes)
	require.NoError(m.t, err)
	o.APIVersion, o.Kind = "certificates.k8s.io/v1", "PodCertificateRequest"
	o.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{
			Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Signed", Message: "by the test",
			LastTransitionTime: metav1.Now(),
		}},
		CertificateChain: string(issued.Chain), NotBefore: new(metav1.NewTime(leaf.NotBefore)),
		BeginRefreshAt: new(metav1.NewTime(issued.BeginRefreshAt)), NotAfter: new(metav1.NewTime(leaf.NotAfter)),
	}
	m.sendRequest(http.MethodPut, pathRequests+"/"+o.Name+"/status", o)
}

func servingCertificate(t *testing.T, m *member) {
	bridge := m.lab.Subnet().Addr().Next()
	m.approveServingCertificate(bridge)
	other := otherAddress(t, bridge)
	m.config["nodeIPs"] = []string{other.String()}
	m.restart()
	m.approveServingCertificate(other)
	require.Equal(t, other.String(), m.do("get", "node", "n1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
}

// otherAddress is an address of this machine other than not.
func otherAddress(t *testing.T, not netip.Addr) netip.Addr {
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		require.NoError(t, err)
		if ip := prefix.Addr(); ip.Is4() && ip.IsGlobalUnicast() && ip != not {
			return ip
		}
	}
	t.Skip("needs two addresses, and this machine has only that of the lab")
	return not
}

// approveServingCertificate approves certificate requests until the agent has a serving certificate for address.
func (m *member) approveServingCertificate(address netip.Addr) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() error {
		out, err := m.try("", "get", "csr", "--field-selector", "spec.signerName=kubernetes.io/kubelet-serving", "-o", "name")
		if err != nil || out == "" {
			return errors.Join(err, errors.New("no certificate is requested"))
		}
		if _, err := m.try("", append([]string{"certificate", "approve"}, strings.Fields(out)...)...); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(m.state, "pki", "kubelet-server-current.pem"))
		if err != nil {
			return err
		}
		block, _ := pem.Decode(data)
		if block == nil {
			return errors.New("the file has no certificate")
		}
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != "n1" {
			return fmt.Errorf("the certificate is for %s", leaf.DNSNames)
		}
		return leaf.VerifyHostname(address.String())
	})
}
