package detect

import (
	"bytes"
	"encoding/binary"
	"io"
	"unicode/utf16"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	oleHeaderBytes = 512
	oleEntryBytes  = 128
	oleEndOfChain  = 0xFFFFFFFA // this and above are no sector numbers
	oleHeaderFAT   = 109        // sector numbers of the allocation table that the header holds
	// maxOLESectors bounds the directory sectors that are looked at.
	maxOLESectors = 64
)

var oleMagic = []byte{0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1}

// detectOLE names what a compound file is: an Outlook message is read, anything else refused, password-protected office files as ENCRYPTED.
func detectOLE(r io.ReaderAt, size int64) (string, error) {
	names := oleNames(r, size)
	switch {
	case names["DRMEncryptedDataSpace"], names["\tDRMContent"]:
		return "", document.Encrypted("the office file is protected by rights management (IRM)")
	case names["EncryptedPackage"], names["EncryptionInfo"], names["ENCRYPTEDPACKAGE"], names["ENCRYPTIONINFO"]: // some programs write them so
		return "", document.Encrypted("the office file is protected with a password")
	case names["WordDocument"]:
		return "", ingest.Permanent(ingest.CodeUnsupportedType, "Save the document as DOCX or PDF and upload that.",
			"a Word document in the old binary format (DOC), which is not supported")
	case names["Workbook"], names["Book"]:
		return "", ingest.Permanent(ingest.CodeUnsupportedType, "Save the workbook as XLSX or CSV and upload that.",
			"an Excel workbook in the old binary format (XLS), which is not supported")
	case names["PowerPoint Document"]:
		return "", ingest.Permanent(ingest.CodeUnsupportedType, "Save the presentation as PPTX or PDF and upload that.",
			"a PowerPoint presentation in the old binary format (PPT), which is not supported")
	case names["__properties_version1.0"]:
		return document.TypeMSG, nil
	}
	return "", document.Unsupported("a compound (OLE) file, which is not supported")
}

// oleNames lists the streams of a compound file, as far as its directory can be followed.
func oleNames(r io.ReaderAt, size int64) map[string]bool {
	names := map[string]bool{}
	header := make([]byte, oleHeaderBytes)
	if _, err := r.ReadAt(header, 0); err != nil {
		return names
	}
	shift := binary.LittleEndian.Uint16(header[30:])
	if shift != 9 && shift != 12 {
		return names
	}
	sectorSize := int64(1) << shift
	sector := binary.LittleEndian.Uint32(header[48:])
	buf := make([]byte, sectorSize)
	for range maxOLESectors {
		at := (int64(sector) + 1) * sectorSize
		if sector >= oleEndOfChain || at >= size {
			break
		}
		n, err := r.ReadAt(buf, at)
		if err != nil && err != io.EOF {
			break
		}
		for e := 0; e+oleEntryBytes <= n; e += oleEntryBytes {
			names[oleName(buf[e:e+oleEntryBytes])] = true
		}
		sector = oleNext(r, header, sectorSize, sector)
	}
	return names
}

// oleNext follows the allocation table by one sector.
func oleNext(r io.ReaderAt, header []byte, sectorSize int64, sector uint32) uint32 {
	perSector := uint32(sectorSize / 4)
	table := sector / perSector
	if table >= oleHeaderFAT {
		return oleEndOfChain
	}
	tableSector := binary.LittleEndian.Uint32(header[76+4*table:])
	entry := make([]byte, 4)
	at := (int64(tableSector)+1)*sectorSize + int64(sector%perSector)*4
	if tableSector >= oleEndOfChain {
		return oleEndOfChain
	}
	if _, err := r.ReadAt(entry, at); err != nil {
		return oleEndOfChain
	}
	return binary.LittleEndian.Uint32(entry)
}

// oleName decodes the UTF-16 name of a directory entry.
func oleName(entry []byte) string {
	length := int(binary.LittleEndian.Uint16(entry[64:]))
	if length < 2 || length > 64 {
		return ""
	}
	units := make([]uint16, 0, length/2)
	for i := 0; i+1 < length-1; i += 2 {
		units = append(units, binary.LittleEndian.Uint16(entry[i:]))
	}
	return string(bytes.Trim([]byte(string(utf16.Decode(units))), "\x00\x01\x03\x05\x06"))
}
