// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// comparedPods run on both nodes: a pod with two running containers, of which log has written ten lines and then three
// errors, a terminated pod, and a pod that cannot start.
var comparedPods = map[string]string{
	"web": `
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: nodeagent.test/busybox:1, command: [sh, -c, "echo first; echo of all"]}
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
  - name: log
    image: nodeagent.test/busybox:1
    command: [sh, -c, "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; sleep 1; for i in 1 2 3; do echo error $i >&2; done; trap exit TERM; while :; do sleep 1; done"]
`,
	"dead": `
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "echo the only time; exit 3"]}
`,
	"waiting": `
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "nodeagent.test/none:1", imagePullPolicy: Never}
`,
}

// bodyPart is the part of a response body that is compared.
type bodyPart int

const (
	text   bodyPart = iota // all except times and IDs
	shape                  // JSON: the names of the fields, in lists of any length
	values                 // JSON: fields with their values, except times and IDs
	subset                 // JSON: each field of the agent is a field of the kubelet
	noBody                 // nothing: the body depends on the process, or another test compares it
)

// comparedRequest is a request of the table. In its target, NODE is the name of the node, and UID that of pod web.
type comparedRequest struct {
	method, target string
	header         http.Header
	part           bodyPart
}

// name is the name of the request in testdata/requests.txt.
func (r comparedRequest) name() string {
	name := r.method + " " + r.target
	for _, h := range slices.Sorted(maps.Keys(r.header)) {
		if h != "Connection" && h != "Sec-Websocket-Key" {
			name += " " + h + "=" + strings.Join(r.header[h], "|")
		}
	}
	return name
}

// comparedResponse is the response to a comparedRequest.
type comparedResponse struct {
	code   int
	header map[string]string
	body   string
}

// comparedNode is the agent or the kubelet.
type comparedNode struct {
	name string
	port int
	uid  string // of pod web
}

// send sends a request unchanged, without the corrections of an HTTP client.
func (n comparedNode) send(ctx context.Context, r comparedRequest) (a comparedResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		return a, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	target := strings.NewReplacer("NODE", n.name, "UID", n.uid).Replace(r.target)
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: node\r\n", r.method, target)
	if r.header.Get("Connection") == "" {
		head += "Connection: close\r\n"
	}
	if r.method != http.MethodGet && r.method != http.MethodHead {
		head += "Content-Length: 0\r\n"
	}
	for name, values := range r.header {
		for _, value := range values {
			head += name + ": " + value + "\r\n"
		}
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return a, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: r.method})
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a = comparedResponse{code: resp.StatusCode, header: n.headers(resp)}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return a, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	a.body = n.mask(string(body))
	return a, err
}

// headers returns the headers of a response by name, without its date and its length.
func (n comparedNode) headers(resp *http.Response) map[string]string {
	headers := map[string]string{}
	for name, values := range resp.Header {
		if name != "Date" && name != "Content-Length" {
			headers[name] = n.mask(strings.Join(values, ", "))
		}
	}
	return headers
}

// Parts of responses that differ between any two nodes and moments.
var (
	maskTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	maskID   = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32,64}\b`)
	maskIP   = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	maskPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	maskNode = regexp.MustCompile(`\bn[12](\b|_)`)
	// The runtime reports the headers that it gets. It gets fewer headers from the agent.
	maskSeen = regexp.MustCompile(`in request with \d+ headers|http\.Header\{.*\}`)
)

func (n comparedNode) mask(s string) string {
	s = maskTime.ReplaceAllString(s, "TIME")
	s = maskID.ReplaceAllString(s, "ID")
	s = maskIP.ReplaceAllString(s, "IP")
	s = maskPort.ReplaceAllString(s, "127.0.0.1:PORT")
	s = maskSeen.ReplaceAllString(s, "HEADERS")
	return maskNode.ReplaceAllString(s, "NODE$1")
}

// compareResponses returns the differences between two responses to a request, by the name of the request and the differing
// part.
func (r comparedRequest) compareResponses(ours, theirs comparedResponse) map[string]string {
	found := map[string]string{}
	add := func(what, ours, theirs string) {
		if ours != theirs {
			found[r.name()+": "+what] = fmt.Sprintf("agent: %.600q, kubelet: %.600q", ours, theirs)
		}
	}
	add("status", fmt.Sprint(ours.code), fmt.Sprint(theirs.code))
	for name := range union(ours.header, theirs.header) {
		add("header "+name, ours.header[name], theirs.header[name])
	}
	part := r.part
	if ours.code != http.StatusOK || theirs.code != http.StatusOK {
		part = text
	}
	if part == noBody {
		return found
	}
	if part == text {
		add("body", ours.body, theirs.body)
		return found
	}
	a, b := r.fields(ours.body, part), r.fields(theirs.body, part)
	for path := range union(a, b) {
		if part != subset || a[path] != "" {
			add("body "+path, a[path], b[path])
		}
	}
	return found
}

// fields returns the fields of a JSON body by their paths.
func (r comparedRequest) fields(body string, part bodyPart) map[string]string {
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		return map[string]string{"": err.Error()}
	}
	all := map[string]string{}
	flatten("", itemsByName(value), all)
	if part == values {
		return all
	}
	kinds := map[string]string{}
	for path, value := range all {
		if part == subset && slices.Contains([]string{"", "<nil>", "0", "0s", "false", "map[]", "[]"}, value) {
			continue // not set
		}
		kinds[listIndex.ReplaceAllString(path, "[]")] = "there"
	}
	return kinds
}

// itemsByName replaces the items of a list by a map of them by name, because their order is random.
func itemsByName(list any) any {
	object, _ := list.(map[string]any)
	items, _ := object["items"].([]any)
	if len(items) == 0 {
		return list
	}
	named := map[string]any{}
	for _, item := range items {
		one, _ := item.(map[string]any)
		metadata, _ := one["metadata"].(map[string]any)
		named[fmt.Sprint(metadata["name"])] = item
	}
	object = maps.Clone(object)
	object["items"] = named
	return object
}

// listIndex matches the index of a list element in a path.
var listIndex = regexp.MustCompile(`\[[^\]]*\]`)

// The API of the agent responds to requests like that of kubelet 1.37.1, which runs the same pods on a containerd of its
// own. Status, headers and body differ only as testdata/requests.txt lists.
func TestClusterRequestsBesideKubelet(t *testing.T) {
	needCluster(t)
	n := newNode(t)
	kubelet := exetest.NewDir(t)
	for name, spec := range comparedPods {
		manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", namespace: default}" + spec
		n.manifests.Write(name+".yaml", manifest)
		kubelet.Write(name+".yaml", manifest)
	}
	fields := map[string]any{
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"}, "enableSystemLogQuery": true,
	}
	own := maps.Clone(fields)
	address := n.lab.Subnet().Addr().Next().String()
	own["enableServer"], own["nodeIPs"], own["failSwapOn"] = true, []string{address}, false // as in the kubelet of this test
	n.start(own)
	fields["port"], fields["staticPodPath"], fields["registerNode"] = exetest.FreePort(t), kubelet.Path, false
	nodes := []comparedNode{{name: "n1", port: n.port}, {name: "n2", port: fields["port"].(int)}}
	nodes[0].awaitPods(t) // and the bridge has its address
	startKubelet(t, fields, "--node-ip="+address)
	nodes[1].awaitPods(t)
	for _, node := range nodes {
		exetest.Eventually(t, clusterTimeout, func() error { return node.checkMeasured(t) })
	}

	differ := map[string]string{}
	for _, r := range comparedRequests() {
		var answers [2]comparedResponse
		for i, node := range nodes {
			var err error
			if answers[i], err = node.send(t.Context(), r); err != nil {
				answers[i].body += " and " + err.Error()
			}
		}
		maps.Copy(differ, r.compareResponses(answers[0], answers[1]))
	}
	require.NoError(t, checkDifferences("requests.txt", differ))
	t.Logf("%d requests", len(comparedRequests()))
}

// awaitPods waits until all pods of the node are in their final state.
func (n *comparedNode) awaitPods(t *testing.T) {
	exetest.Eventually(t, clusterTimeout, func() error {
		a, err := n.send(t.Context(), comparedRequest{http.MethodGet, "/pods", nil, noBody})
		if err != nil {
			return err
		}
		if a.code != http.StatusOK {
			return fmt.Errorf("%s responds with %d: %s", n.name, a.code, a.body)
		}
		return n.checkPodsSettled(t)
	})
}

// checkPodsSettled returns an error that names the pods of the node that are not in their final state.
func (n *comparedNode) checkPodsSettled(t *testing.T) error {
	resp, err := (&http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}).Get(fmt.Sprintf("https://127.0.0.1:%d/pods", n.port))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var pods corev1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&pods); err != nil {
		return err
	}
	is := map[string]bool{}
	for _, pod := range pods.Items {
		s := pod.Status.ContainerStatuses
		switch {
		case pod.Name == "web-"+n.name && len(s) == 2 && s[0].Ready && s[1].Ready:
			n.uid = string(pod.UID)
			a, err := n.send(t.Context(), comparedRequest{http.MethodGet, "/containerLogs/default/web-NODE/log", nil, text})
			is["web"] = err == nil && strings.Contains(a.body, "error 3")
		case pod.Name == "dead-"+n.name:
			is["dead"] = pod.Status.Phase == corev1.PodFailed
		case pod.Name == "waiting-"+n.name && len(s) == 1 && s[0].State.Waiting != nil:
			is["waiting"] = s[0].State.Waiting.Reason == "ErrImageNeverPull"
		}
	}
	var missing []error
	for name := range comparedPods {
		if !is[name] {
			missing = append(missing, errors.New("pod "+name+" of "+n.name+" is not in its final state"))
		}
	}
	return errors.Join(missing...)
}

// checkMeasured returns an error if the summary of the node lacks values that are measured in the background.
func (n comparedNode) checkMeasured(t *testing.T) error {
	a, err := n.send(t.Context(), comparedRequest{http.MethodGet, "/stats/summary", nil, text})
	if err != nil {
		return err
	}
	var summary statsapi.Summary
	if err := json.Unmarshal([]byte(strings.ReplaceAll(a.body, "TIME", "2000-01-01T00:00:00Z")), &summary); err != nil {
		return err
	}
	if summary.Node.CPU == nil || summary.Node.CPU.UsageNanoCores == nil {
		return fmt.Errorf("%s: no CPU usage of the node", n.name)
	}
	for _, pod := range summary.Pods {
		for _, c := range pod.Containers {
			if c.Logs == nil || c.Logs.UsedBytes == nil || c.CPU == nil || c.CPU.UsageNanoCores == nil {
				return fmt.Errorf("%s: no logs or CPU usage of %s/%s", n.name, pod.PodRef.Name, c.Name)
			}
		}
	}
	return nil
}
