// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/seed81659283/nodeagent/internal/safeyaml"
)

const (
	maxSize      = 10 << 20 // maximum size of a manifest in bytes, as in the kubelet
	maxErrors    = 100      // maximum number of reported errors per manifest
	maxText      = 2_000    // maximum length of an error in bytes
	maxDocuments = 10_000   // maximum number of documents per manifest
	documentCost = 15       // decoding cost of an empty document, in values
	podCost      = 40       // additional decoding cost of a pod, in values
	maxTries     = 20_000   // maximum number of decoding attempts to locate invalid values
)

// Parse returns the valid static pods of a manifest, and an error for each invalid part. An empty list is valid; a manifest
// without any object is not.
func Parse(data []byte, origin Origin) ([]*corev1.Pod, []*Error) {
	entries, errs, _ := parse(data, origin)
	var pods []*corev1.Pod
	for _, e := range entries {
		pods = append(pods, e.pod)
	}
	return pods, errs
}

// entry is a pod of a manifest with its line and hash.
type entry struct {
	pod   *corev1.Pod
	sum   string // hash of the pod in the manifest, with defaults
	line  int    // line of the pod's name in the file
	inSet bool   // the pod is in the set that was passed last, because no other pod has its name or UID
}

func (e entry) podKey() string { return e.pod.Namespace + "/" + e.pod.Name }

// parse parses a manifest like [Parse]. It also returns the line and hash of each pod, and the manifest's size as total.
func parse(data []byte, origin Origin) (entries []entry, errs []*Error, total cost) {
	p := parser{origin: origin, budget: safeyaml.NewBudget(len(data)), tries: maxTries}
	p.at.root = &yaml.Node{}
	p.parseDocuments(data)
	return p.entries, p.errs, cost{values: p.budget.Spent(), bytes: len(data)}
}

// parser decodes one manifest, and collects its pods and errors.
type parser struct {
	origin  Origin
	budget  *safeyaml.Budget // remaining decoding budget
	tries   int              // remaining decoding attempts to locate invalid values
	at      positions        // lines of the current document
	entries []entry
	errs    []*Error
}

func (p *parser) parseDocuments(data []byte) {
	switch docs := splitDocuments(data); {
	case len(data) > maxSize:
		p.reportLine(1, "", fmt.Errorf("%d bytes exceed the limit of %d", len(data), maxSize))
	case len(docs) == 0:
		p.reportLine(1, "", errors.New("no object, only blanks and comments"))
	case len(docs) > maxDocuments:
		p.reportLine(1, "", fmt.Errorf("more than %d documents", maxDocuments))
	default:
		for _, d := range docs {
			if err := p.budget.Spend(documentCost); err != nil {
				p.reportLine(d.before+1, "", errors.Unwrap(err))
				return
			}
			p.parseDocument(d)
		}
	}
}

// hasTooManyErrors reports whether there are more than maxErrors errors. Further errors are dropped, so the caller need not
// look for them.
func (p *parser) hasTooManyErrors() bool { return len(p.errs) > maxErrors }

func (p *parser) reportField(path string, err error) {
	if !p.hasTooManyErrors() {
		p.reportLine(p.at.lineOf(path), path, err)
	}
}

func (p *parser) reportLine(line int, path string, err error) {
	if len(p.errs) >= maxErrors {
		path, err = "", errors.New("further errors are not shown")
	}
	if text := err.Error(); len(text) > maxText {
		err = errors.New(strings.ToValidUTF8(text[:maxText], "") + "...")
	}
	if len(path) > maxText {
		path = strings.ToValidUTF8(path[:maxText], "") + "..."
	}
	if !p.hasTooManyErrors() {
		p.errs = append(p.errs, &Error{File: p.origin.Location, Line: line, Field: path, Err: err})
	}
}

// podList is a PodList or List whose items are not decoded yet.
type podList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (p *parser) parseDocument(doc document) {
	raw, ok := p.convertToJSON(doc)
	if !ok {
		return
	}
	kind, ok := p.readKind(raw, "", "")
	switch {
	case !ok:
	case kind == "Pod":
		p.parsePod(raw, "", false)
	case kind == "PodList":
		p.parseList(raw, "Pod")
	case kind == "List":
		p.parseList(raw, "")
	default:
		p.reportField("kind", fmt.Errorf("want Pod, PodList or List, got %q", kind))
	}
}

// parseList parses each item of a PodList or List as a pod. implied is the kind of an item that has neither kind nor
// apiVersion.
func (p *parser) parseList(raw []byte, implied string) {
	l := podList{}
	if !p.decodeStrict(raw, "", &l) {
		return
	}
	for i, item := range l.Items {
		path := fmt.Sprintf("items[%d]", i)
		kind, ok := p.readKind(item, path, implied)
		switch {
		case !ok:
		case kind == "Pod":
			p.parsePod(item, path, implied != "")
		default:
			p.reportField(joinPath(path, "kind"), fmt.Errorf("want Pod, got %q", kind))
		}
	}
}

// readKind returns the kind of an object of the core API, or implied if the object has none. It reports an invalid object as an
// error with this path.
func (p *parser) readKind(raw []byte, path, implied string) (string, bool) {
	if b := bytes.TrimSpace(raw); len(b) == 0 || b[0] != '{' {
		p.reportField(path, errors.New("want an object"))
		return "", false
	}
	var t struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &t); err != nil {
		p.reportField(path, err)
		return "", false
	}
	if implied != "" && t.APIVersion == nil && t.Kind == nil {
		return implied, true
	}
	kind, ok := t.Kind.(string)
	switch {
	case t.APIVersion == nil:
		p.reportField(joinPath(path, "apiVersion"), errors.New("required"))
	case t.APIVersion != "v1":
		p.reportField(joinPath(path, "apiVersion"), fmt.Errorf("want \"v1\", got %q", fmt.Sprint(t.APIVersion)))
	case !ok || kind == "":
		p.reportField(joinPath(path, "kind"), errors.New("required"))
	default:
		return kind, true
	}
	return "", false
}

// decodeStrict decodes raw into the struct that object points to. It reports invalid, unknown or duplicate fields as errors
// below path and returns false.
func (p *parser) decodeStrict(raw []byte, path string, object any) bool {
	strict, err := kjson.UnmarshalStrict(raw, object)
	if err != nil {
		where, cause := p.findInvalidValue(raw, reflect.TypeOf(object).Elem())
		p.reportField(joinPath(path, where), cause)
		return false
	}
	for _, err := range strict {
		name, text := "", err.Error()
		if f, ok := errors.AsType[kjson.FieldError](err); ok {
			name = f.FieldPath()
			text = strings.TrimSuffix(text, fmt.Sprintf(" %q", name))
		}
		p.reportField(joinPath(path, name), errors.New(text))
	}
	return len(strict) == 0
}

// reportPart reports an error of the object at path. If err is a *safeyaml.Error, it appends the path of the invalid field
// within the object.
func (p *parser) reportPart(path string, err error) {
	if e, ok := errors.AsType[*safeyaml.Error](err); ok {
		path, err = joinPath(path, e.Path), e.Err
	}
	p.reportField(path, err)
}

// parsePod decodes a pod, sets its defaults and validates it. It adds a valid pod to p.entries, and reports errors below path.
// inPodList is true for an item of a PodList.
func (p *parser) parsePod(raw []byte, path string, inPodList bool) {
	err := p.budget.Spend(podCost)
	if err == nil {
		err = safeyaml.Quantities(raw, reflect.TypeFor[corev1.Pod]())
	}
	if err != nil {
		p.reportPart(path, err)
		return
	}
	pod := &corev1.Pod{}
	if !p.decodeStrict(raw, path, pod) {
		return
	}
	if pod.Name == "" {
		p.reportField(joinPath(path, "metadata.name"), errors.New("required"))
		return
	}
	sum, errs := p.origin.completeManifest(pod, inPodList)
	for _, e := range errs {
		p.reportField(joinPath(path, e.Field), errors.New(e.ErrorBody()))
	}
	if len(errs) > 0 {
		return
	}
	p.entries = append(p.entries, entry{pod: pod, sum: sum, line: p.at.lineOf(joinPath(path, "metadata.name"))})
}

// findInvalidValue returns the path of the value in raw that cannot be decoded as the type typ, and the cause.
func (p *parser) findInvalidValue(raw []byte, typ reflect.Type) (where string, cause error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	// The error of the decoder has no path, so the values are decoded one by one. After maxTries, the path is that of a parent.
	path, err := p.findInvalidChild(v, func(v any) error {
		p.tries--
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return kjson.UnmarshalCaseSensitivePreserveInts(b, reflect.New(typ).Interface())
	})
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("want %s, got %s", typeName(e.Type), e.Value)
	}
	return path, err
}

// findInvalidChild returns the path, relative to v, of the first value in v that cannot be decoded, and the error. The function
// decode decodes the manifest with v replaced.
func (p *parser) findInvalidChild(v any, decode func(any) error) (where string, cause error) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			within := func(x any) error { return decode(map[string]any{key: x}) }
			if p.tries > 0 && within(v[key]) != nil && within(nil) == nil {
				path, err := p.findInvalidChild(v[key], within)
				if strings.ContainsAny(key, ".[]") {
					key = "[" + key + "]"
				}
				return joinPath(key, path), err
			}
		}
	case []any:
		for i, x := range v {
			within := func(x any) error { return decode([]any{x}) }
			if p.tries > 0 && within(x) != nil && within(nil) == nil {
				path, err := p.findInvalidChild(x, within)
				return joinPath(fmt.Sprintf("[%d]", i), path), err
			}
		}
	}
	return "", decode(v)
}

// typeName returns the name of a Go type for the author of a manifest, such as object, list or boolean.
func typeName(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		return "list"
	case reflect.Bool:
		return "boolean"
	case reflect.Pointer:
		return typeName(typ.Elem())
	}
	return typ.Kind().String()
}
