// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memimage

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"
)

// Packer packs variables. Its images share a dictionary, which is one of the first images: images of similar variables are then much smaller. Create
// it with [NewPacker]. It is safe for concurrent use.
type Packer struct {
	keepTypes map[reflect.Type]bool

	mu         sync.Mutex  // guards the fields below
	dictionary *dictionary // of the next image; nil: there is no image yet
	source     int         // size of the content that is the dictionary

	readers sync.Pool // of io.ReadCloser
}

// maxDictionary is the window of the compression in bytes: more of a dictionary has no effect.
const maxDictionary = 32 << 10

// NewPacker returns a Packer that does not follow pointers of these types, and pointers to time.Location.
func NewPacker(keepTypes ...reflect.Type) *Packer {
	p := &Packer{keepTypes: map[reflect.Type]bool{reflect.TypeFor[*time.Location](): true}}
	for _, t := range keepTypes {
		p.keepTypes[t] = true
	}
	return p
}

// Image has the packed values of variables.
type Image struct {
	packer     *Packer
	dictionary *dictionary // nil: compressed without a dictionary
	variables  []any       // pointers
	packed     []byte      // compressed
	size       int         // of the bytes before their compression
	kept       []any       // functions, channels, interfaces and pointers that are not packed
}

// Pack packs the values of variables, which are non-nil pointers, and sets the values to zero. The caller must not use them before it calls
// [Image.Restore]. After an error, which names the types that cannot be packed, the variables are unchanged.
func (p *Packer) Pack(variables ...any) (*Image, error) {
	e := newEncoder(p.keepTypes)
	values := make([]reflect.Value, len(variables))
	for i, variable := range variables {
		v := reflect.ValueOf(variable)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return nil, fmt.Errorf("memimage.Pack: variable %d is a %T, not a pointer, or is nil", i, variable)
		}
		values[i] = v.Elem()
		e.addObject(v.UnsafePointer(), v.Elem().Type(), v.Elem().Type().Size())
	}
	for _, v := range values {
		e.encodeValue(v)
	}
	if err := e.checkOverlaps(); err != nil {
		return nil, fmt.Errorf("memimage.Pack: %w", err)
	}
	image := &Image{packer: p, variables: variables, size: len(e.out), kept: e.kept}
	p.compress(image, e.out)
	for _, v := range values {
		v.SetZero()
	}
	return image, nil
}

// Size returns the number of bytes of the image.
func (i *Image) Size() int { return len(i.packed) }

// Restore sets the variables of the image to their packed values. It must be called once. It panics if memory of the process is damaged.
func (i *Image) Restore() {
	d := &decoder{in: i.packer.decompress(i), keepTypes: i.packer.keepTypes, kept: i.kept}
	values := make([]reflect.Value, len(i.variables))
	for j, variable := range i.variables {
		v := reflect.ValueOf(variable)
		values[j] = v.Elem()
		d.objects = append(d.objects, v)
	}
	for _, v := range values {
		d.decodeValue(v)
	}
}

// compress compresses content into the image, with the dictionary of the Packer if there is one. Content that is much larger than the dictionary
// becomes the dictionary of later images.
func (p *Packer) compress(image *Image, content []byte) {
	p.mu.Lock()
	image.dictionary = p.dictionary
	if len(content) >= 2*p.source && p.source < maxDictionary {
		p.source = len(content)
		p.dictionary = &dictionary{content: bytes.Clone(content[max(0, len(content)-maxDictionary):])}
	}
	p.mu.Unlock()
	var out bytes.Buffer
	w := image.dictionary.takeWriter(&out)
	_, _ = w.Write(content) // a buffer does not fail
	_ = w.Close()
	if image.dictionary != nil {
		image.dictionary.writers.Put(w)
	}
	image.packed = bytes.Clone(out.Bytes())
}

// dictionary is a dictionary of the compression, with writers that use it.
type dictionary struct {
	content []byte
	writers sync.Pool // of *flate.Writer
}

// takeWriter returns a writer that compresses to out with the dictionary d; nil: without one.
func (d *dictionary) takeWriter(out *bytes.Buffer) (w *flate.Writer) {
	if d == nil {
		w, _ = flate.NewWriter(out, flate.DefaultCompression) // fails for an invalid level only
		return w
	}
	if w, _ = d.writers.Get().(*flate.Writer); w != nil {
		w.Reset(out)
		return w
	}
	w, _ = flate.NewWriterDict(out, flate.DefaultCompression, d.content)
	return w
}

// decompress returns the content of the image.
func (p *Packer) decompress(image *Image) []byte {
	var dictionary []byte
	if image.dictionary != nil {
		dictionary = image.dictionary.content
	}
	r, _ := p.readers.Get().(io.ReadCloser)
	if r == nil {
		r = flate.NewReaderDict(bytes.NewReader(image.packed), dictionary)
	} else {
		_ = r.(flate.Resetter).Reset(bytes.NewReader(image.packed), dictionary) // returns nil
	}
	content := make([]byte, image.size)
	if _, err := io.ReadFull(r, content); err != nil {
		panic(fmt.Sprintf("memimage: image of this process is damaged: %v", err))
	}
	p.readers.Put(r)
	return content
}
