// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package record encodes the files in which an engine stores its state: a line with the kind of record, its version and the checksum of the document
// after the line.
package record

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// Format is the first line of the records of one engine.
type Format struct {
	Magic   string // for example "nodeagent-devices"; without spaces
	Version string
	Content string // for error messages, for example "devices"
}

// Encode returns the content of a record file with this document.
func (f Format) Encode(doc []byte) []byte {
	header := fmt.Sprintf("%s version=%s sha256=%x\n", f.Magic, f.Version, sha256.Sum256(doc))
	return append([]byte(header), doc...)
}

// Decode returns the document in the content of a record file. Another kind of file, an unknown version or a wrong checksum is an error.
func (f Format) Decode(data []byte) ([]byte, error) {
	header, doc, _ := bytes.Cut(data, []byte("\n"))
	rest, ok := strings.CutPrefix(string(header), f.Magic+" version=")
	if !ok {
		return nil, errors.New("it is no record of " + f.Content)
	}
	found, sum, _ := strings.Cut(rest, " sha256=")
	if found != f.Version {
		return nil, fmt.Errorf("its version is %.20q, this program reads %s", found, f.Version)
	}
	if sum != fmt.Sprintf("%x", sha256.Sum256(doc)) {
		return nil, errors.New("its checksum does not match")
	}
	return doc, nil
}
