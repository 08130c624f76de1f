package operate

var DeliveryWords = deliveryWords
