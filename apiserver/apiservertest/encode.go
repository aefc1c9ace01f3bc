// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// encoding is the media type and encoder of a response.
type encoding struct {
	info         runtime.SerializerInfo
	encoder      runtime.Encoder
	metadataOnly bool // the response has a PartialObjectMetadata for each object
}

// negotiateEncoding returns the first encoding in the Accept header that the server supports, or the zero value.
func (c *call) negotiateEncoding() encoding {
	accept := c.r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for part := range strings.SplitSeq(accept, ",") {
		metadataOnly := isMetadataOnly(part)
		if strings.Contains(part, "as=") && !metadataOnly {
			continue // tables
		}
		name := mediaType(part)
		if name == "*/*" || name == "application/*" {
			name = runtime.ContentTypeJSON
		}
		if name == runtime.ContentTypeProtobuf && c.kind.typ == nil && !metadataOnly {
			continue // custom resources
		}
		if info, ok := c.findSerializer(name); ok {
			return encoding{info, c.server.kinds.codecs.WithoutConversion().EncoderForVersion(info.Serializer, c.kind.GroupVersion()), metadataOnly}
		}
	}
	return encoding{}
}

// isMetadataOnly reports whether a part of the Accept header requests PartialObjectMetadata, as the client of client-go/metadata does.
func isMetadataOnly(accepted string) bool {
	_, parameters, err := mime.ParseMediaType(accepted)
	return err == nil && (parameters["as"] == "PartialObjectMetadata" || parameters["as"] == "PartialObjectMetadataList") &&
		parameters["g"] == metav1.GroupName && parameters["v"] == "v1"
}

// findSerializer returns the serializer for a media type. Only JSON and protobuf are supported.
func (c *call) findSerializer(mediaType string) (info runtime.SerializerInfo, supported bool) {
	if mediaType != runtime.ContentTypeJSON && mediaType != runtime.ContentTypeProtobuf {
		return runtime.SerializerInfo{}, false
	}
	return runtime.SerializerInfoForMediaType(c.server.kinds.codecs.SupportedMediaTypes(), mediaType)
}

// writeObject sends the object in the negotiated encoding, as a response with the HTTP status code.
func (c *call) writeObject(code int, obj runtime.Object) {
	var body bytes.Buffer
	if err := c.encodeObject(obj, &body); err != nil {
		c.writeJSON(http.StatusInternalServerError, apierrors.NewInternalError(err).ErrStatus)
		return
	}
	c.server.log.setCode(c.index, code)
	c.w.Header().Set("Content-Type", c.encoding.info.MediaType)
	c.w.WriteHeader(code)
	_, _ = c.w.Write(body.Bytes()) // the client may have disconnected
}

// encodeObject writes the object, with its kind and API version, to w. The object may be shared and is not changed.
func (c *call) encodeObject(obj runtime.Object, w io.Writer) error {
	stored, isObject := obj.(Object)
	if isObject && c.encoding.metadataOnly {
		return c.encoding.info.Serializer.Encode(partialMetadata(stored), w)
	}
	switch known := obj.(type) {
	case *metav1.Status:
		status := *known
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return c.encoding.info.Serializer.Encode(&status, w)
	case *metav1.PartialObjectMetadataList, *unstructured.Unstructured, *unstructured.UnstructuredList:
		return c.encoding.info.Serializer.Encode(obj, w)
	}
	if isObject {
		obj = c.kind.fromStored(stored)
	}
	return c.encoding.encoder.Encode(obj.DeepCopyObject(), w) // the encoder sets the kind of its argument for a moment
}

// buildList returns a list of the requested kind, such as a PodList, with these items and this resource version.
func (c *call) buildList(objects []Object, resourceVersion int64) (runtime.Object, error) {
	if c.kind.typ == nil {
		return c.buildUnstructuredList(objects, resourceVersion), nil
	}
	list, err := c.server.kinds.scheme.New(c.kind.GroupVersion().WithKind(c.kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(objects))
	for i, obj := range objects {
		items[i] = c.kind.fromStored(obj)
	}
	if err := apimeta.SetList(list, items); err != nil {
		return nil, err
	}
	meta, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	meta.SetResourceVersion(fmt.Sprint(resourceVersion))
	return list, nil
}

// buildUnstructuredList returns a list of custom resources.
func (c *call) buildUnstructuredList(objects []Object, version int64) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Object: map[string]any{}, Items: make([]unstructured.Unstructured, len(objects))}
	list.SetGroupVersionKind(c.kind.GroupVersion().WithKind(c.kind.Kind + "List"))
	list.SetResourceVersion(fmt.Sprint(version))
	for i, obj := range objects {
		list.Items[i] = *obj.(*unstructured.Unstructured)
	}
	return list
}

// decodeBody decodes the JSON or protobuf request body into an object of the same Go type as into. It sets no default
// values.
func (c *call) decodeBody(into runtime.Object) (runtime.Object, error) {
	name := mediaType(c.r.Header.Get("Content-Type"))
	if name == "" {
		name = runtime.ContentTypeJSON
	}
	info, ok := c.findSerializer(name)
	if !ok {
		return nil, c.unsupportedMediaType(runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)
	}
	var want *schema.GroupVersionKind
	if kinds, _, err := c.server.kinds.scheme.ObjectKinds(into); err == nil {
		want = &kinds[0]
	}
	obj, _, err := info.Serializer.Decode(c.body, want, into)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

// unsupportedMediaType returns the error for a request body with an unsupported media type. The error lists the accepted
// media types.
func (c *call) unsupportedMediaType(accepted ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// decodeObject decodes the request body. It returns an error unless the kind, namespace and name of the object match the
// path of the request.
func (c *call) decodeObject() (Object, error) {
	decoded, err := c.decodeBody(c.kind.newObject())
	if err != nil {
		return nil, err
	}
	obj, ok := decoded.(Object)
	if !ok || c.server.kinds.kindOf(obj) != c.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s in version %q",
			decoded.GetObjectKind().GroupVersionKind().Kind, decoded.GetObjectKind().GroupVersionKind().GroupVersion(), c.kind.Kind, c.kind.GroupVersion()))
	}
	if c.kind.typ != nil {
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(c.namespace)
	}
	if obj.GetNamespace() != c.namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if c.name != "" && obj.GetName() != c.name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), c.name))
	}
	return c.kind.toStored(obj), nil
}

// watchWriter writes the events of a watch as frames of the response.
type watchWriter struct {
	call *call
	w    io.Writer
}

// startWatchResponse sends the headers of a watch response, and returns the writer for the watch events.
func (c *call) startWatchResponse() *watchWriter {
	mediaType := c.encoding.info.MediaType
	if mediaType != runtime.ContentTypeJSON {
		mediaType += ";stream=watch"
	}
	c.server.log.setCode(c.index, http.StatusOK)
	c.w.Header().Set("Content-Type", mediaType)
	c.w.WriteHeader(http.StatusOK)
	f := &watchWriter{call: c, w: c.encoding.info.StreamSerializer.NewFrameWriter(c.w)}
	f.flushEvents()
	return f
}

// writeEvent writes one event of the watch. It does not flush the response.
func (f *watchWriter) writeEvent(event watch.EventType, obj runtime.Object) error {
	var body, frame bytes.Buffer
	if err := f.call.encodeObject(obj, &body); err != nil {
		return err
	}
	wrapped := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: body.Bytes()}}
	if err := f.call.encoding.info.StreamSerializer.Encode(wrapped, &frame); err != nil {
		return err
	}
	_, err := f.w.Write(frame.Bytes())
	return err
}

func (f *watchWriter) flushEvents() {
	if flusher, ok := f.call.w.(http.Flusher); ok {
		flusher.Flush()
	}
}
